package render_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"raftboard/cmd/raftboard/render"
)

func view() render.View {
	value := render.Raw("{ \"a\": 9007199254740993,\r\n \"b\":1.0 }")
	o := render.Object{{"key", "facts/x"}, {"version", uint64(3)}, {"value", value}, {"note", "<b>&"}, {"ok", true}}
	table := &render.Table{Columns: render.Cols("KEY", "VERSION", "+NOTE", "VALUE")}
	table.Row("facts/x", "3", "wide only", "{ \"a\":\n 1 }")
	table.Row("k", "12", "", "")
	return render.View{Object: o, Names: []string{"facts/x"}, Table: table}
}

func printed(t *testing.T, form string, v render.View, change func(*render.Printer)) string {
	t.Helper()
	f, tmpl, err := render.ParseForm(form)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	p := &render.Printer{Out: &b, Form: f, Template: tmpl}
	if change != nil {
		change(p)
	}
	if err := p.Print(v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestEveryFormShowsTheSameAnswer(t *testing.T) {
	cases := map[string]string{
		"table": "KEY      VERSION  VALUE\nfacts/x  3        { \"a\":  1 }\nk        12       -\n",
		"wide":  "KEY      VERSION  NOTE       VALUE\nfacts/x  3        wide only  { \"a\":  1 }\nk        12       -          -\n",
		"json": "{\"key\":\"facts/x\",\"version\":3,\"value\":{ \"a\": 9007199254740993,\r\n \"b\":1.0 }," +
			"\"note\":\"<b>&\",\"ok\":true}\n",
		"jsonl": "{\"key\":\"facts/x\",\"version\":3,\"value\":{ \"a\": 9007199254740993,   \"b\":1.0 }," +
			"\"note\":\"<b>&\",\"ok\":true}\n",
		"name":                               "facts/x\n",
		"template={{.key}}@{{.version}}":     "facts/x@3\n",
		"template={{.value}}":                "{ \"a\": 9007199254740993,\r\n \"b\":1.0 }\n",
		"template={{if .ok}}fine{{end}}\n\n": "fine\n\n",
	}
	for form, want := range cases {
		if got := printed(t, form, view(), nil); got != want {
			t.Errorf("-o %s:\ngot  %q\nwant %q", form, got, want)
		}
	}
}

func TestYAMLIsReadBackAsTheSameData(t *testing.T) {
	v := view()
	v.Object.Add("rows", []render.Object{{{"a", "x: y"}, {"b", []string{"-", "n"}}}, {{"a", "null"}}})
	v.Object.Add("none", []render.Object{})
	v.Object.Add("deep", render.Object{{"empty", render.Object{}}})
	var fromYAML, fromJSON map[string]any
	if err := yaml.Unmarshal([]byte(printed(t, "yaml", v, nil)), &fromYAML); err != nil {
		t.Fatalf("%v\n%s", err, printed(t, "yaml", v, nil))
	}
	if err := json.Unmarshal([]byte(printed(t, "json", v, nil)), &fromJSON); err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(fromYAML)
	b, _ := json.Marshal(fromJSON)
	var x, y any
	json.Unmarshal(a, &x)
	json.Unmarshal(b, &y)
	a, _ = json.Marshal(x)
	b, _ = json.Marshal(y)
	if string(a) != string(b) {
		t.Errorf("yaml says %s\njson says %s", a, b)
	}
}

func TestTerminalsGetNoControlsAndPipesGetTheBytes(t *testing.T) {
	evil := "\x1b]52;c;aGk=\x07\u202eabc\u200b\U000e0041\u0085\x7f\xff"
	want := `\u001b]52;c;aGk=\u0007\u202eabc\u200b\udb40\udc41\u0085\u007f\xff`
	if got := render.Safe(evil); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	quoted := render.Raw("{\"x\":\"\u202e\u200b\U000e0041\"}\r")
	v := render.View{Object: render.Object{{"value", quoted}}, Table: &render.Table{Columns: render.Cols("V")}}
	v.Table.Row(string(quoted) + "\x1b[2J")
	for _, form := range []string{"table", "json", "jsonl", "yaml"} {
		got := printed(t, form, v, func(p *render.Printer) { p.Terminal = true })
		if strings.ContainsAny(got, "\u202e\u200b\U000e0041\x1b\r") {
			t.Errorf("-o %s on a terminal: %q", form, got)
		}
	}
	if got := printed(t, "json", v, nil); !strings.Contains(got, string(quoted)) {
		t.Errorf("a pipe must get the bytes: %q", got)
	}
}

func TestColourIsAddedOnlyWhenAskedAndNeverCarriesTheMeaning(t *testing.T) {
	table := &render.Table{Columns: render.Cols("LEFT", "X")}
	table.Rows = [][]render.Cell{{{Text: "expired", Style: render.Bad}, {Text: "1"}}}
	v := render.View{Object: render.Object{}, Table: table}
	plain := printed(t, "table", v, nil)
	if strings.Contains(plain, "\x1b") || !strings.Contains(plain, "expired") {
		t.Errorf("plain: %q", plain)
	}
	painted := printed(t, "table", v, func(p *render.Printer) { p.Terminal, p.Color = true, true })
	if !strings.Contains(painted, "\x1b[31mexpired\x1b[") {
		t.Errorf("painted: %q", painted)
	}
}

func TestNumbersArePlainAndExactBeyondTwoToThe53(t *testing.T) {
	o := render.Obj("rev", uint64(1<<53+1), "rate", 0.25, "left_ms", int64(-1), "count", 7)
	if got := printed(t, "json", render.View{Object: o},
		nil); got != `{"rev":9007199254740993,"rate":0.25,"left_ms":-1,"count":7}`+"\n" {
		t.Errorf("got %s", got)
	}
}

func TestUnknownFormsAreRefusedWithTheList(t *testing.T) {
	for _, form := range []string{"", "xml", "template={{"} {
		if _, _, err := render.ParseForm(form); err == nil {
			t.Errorf("-o %q was accepted", form)
		}
	}
}

func TestUnitsAreReadable(t *testing.T) {
	for ms, want := range map[int64]string{0: "0ms", 48: "48ms", 4000: "0m04s", 492000: "8m12s", 5400000: "1h30m",
		529200000: "6d3h", -4000: "-0m04s"} {
		if got := render.Duration(ms); got != want {
			t.Errorf("%d ms: got %s, want %s", ms, got, want)
		}
	}
	for n, want := range map[uint64]string{812: "812 B", 1946: "1.9 KiB", 14889779: "14.2 MiB"} {
		if got := render.Bytes(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}
