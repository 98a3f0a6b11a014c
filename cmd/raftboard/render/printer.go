package render

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/template"
)

// Form is a way to print.
type Form string

// The forms of -o. Template carries its text behind "template=".
const (
	FormTable    Form = "table"
	FormWide     Form = "wide"
	FormJSON     Form = "json"
	FormLines    Form = "jsonl"
	FormYAML     Form = "yaml"
	FormName     Form = "name"
	FormTemplate Form = "template"
)

// Forms lists the values of -o.
func Forms() []string {
	return []string{"table", "wide", "json", "jsonl", "yaml", "name", "template=TEXT"}
}

// View is one answer in every form.
type View struct {
	Object Object   // the whole; nil: Lines
	Lines  []Object // the records one by one, for jsonl and templates; nil: Object
	Names  []string // for -o name
	Table  *Table   // for people
	Text   string   // for people, instead of a table: one line
}

// Printer writes answers to one place.
type Printer struct {
	Out       io.Writer
	Form      Form
	Template  *template.Template
	Terminal  bool // Out is one
	Color     bool
	NoHeaders bool

	stream *paper // of Stream
}

// ParseForm reads the value of -o.
func ParseForm(s string) (Form, *template.Template, error) {
	if text, is := strings.CutPrefix(s, "template="); is {
		t, err := template.New("-o").Option("missingkey=zero").Parse(text)
		if err != nil {
			return "", nil, fmt.Errorf("-o template: %w", err)
		}
		return FormTemplate, t, nil
	}
	switch f := Form(s); f {
	case FormTable, FormWide, FormJSON, FormLines, FormYAML, FormName:
		return f, nil, nil
	}
	return "", nil, fmt.Errorf("-o %q is none of %s", s, strings.Join(Forms(), ", "))
}

// Machine tells whether programs read the output.
func (p *Printer) Machine() bool { return p.Form != FormTable && p.Form != FormWide }

// Print writes a whole answer.
func (p *Printer) Print(v View) error {
	lines := v.Lines
	if lines == nil {
		lines = []Object{v.Object}
	}
	switch p.Form {
	case FormJSON:
		return p.write(append(AppendJSON(nil, v.whole(), false), '\n'))
	case FormYAML:
		return p.write(appendYAML(nil, v.whole(), 0))
	case FormLines, FormTemplate:
		for _, line := range lines {
			if err := p.record(line); err != nil {
				return err
			}
		}
		return nil
	case FormName:
		for _, name := range v.Names {
			if err := p.write([]byte(name + "\n")); err != nil {
				return err
			}
		}
		return nil
	}
	return p.people(v)
}

func (v View) whole() any {
	if v.Object == nil {
		return v.Lines
	}
	return v.Object
}

func (p *Printer) people(v View) error {
	if v.Table == nil {
		if v.Text == "" {
			return nil
		}
		return p.write([]byte(strings.TrimRight(v.Text, "\n") + "\n"))
	}
	if v.Table.Title != "" && !p.NoHeaders {
		if err := p.write([]byte(v.Table.Title + "\n")); err != nil {
			return err
		}
	}
	if len(v.Table.Rows) == 0 && v.Table.Empty != "" {
		return p.write([]byte(v.Table.Empty + "\n"))
	}
	return p.paper().draw(p.Out, v.Table)
}

func (p *Printer) paper() *paper {
	return &paper{wide: p.Form == FormWide, headers: !p.NoHeaders, terminal: p.Terminal, color: p.Color}
}

// Stream writes one record of a stream: a line, whatever the form. The first one brings the heads;
// widths start at those of the heads (or of the columns' names padded by the caller) and grow.
func (p *Printer) Stream(line Object, name string, columns []Column, row []Cell) error {
	switch p.Form {
	case FormJSON, FormLines, FormTemplate:
		return p.record(line)
	case FormYAML:
		return p.write(appendYAML([]byte("---\n"), line, 0))
	case FormName:
		return p.write([]byte(name + "\n"))
	}
	return p.StreamRows(columns, [][]Cell{row})
}

// StreamRows writes rows of a stream for people; the first ones bring the heads.
func (p *Printer) StreamRows(columns []Column, rows [][]Cell) error {
	if p.stream == nil {
		p.stream = p.paper()
	}
	err := p.stream.draw(p.Out, &Table{Columns: columns, Rows: rows})
	p.stream.headers = false
	return err
}

func (p *Printer) record(o Object) error {
	if p.Form != FormTemplate {
		return p.write(append(AppendJSON(nil, o, true), '\n'))
	}
	var b bytes.Buffer
	if err := p.Template.Execute(&b, plain(o)); err != nil {
		return fmt.Errorf("-o template: %w", err)
	}
	if !bytes.HasSuffix(b.Bytes(), []byte("\n")) {
		b.WriteByte('\n')
	}
	return p.write(b.Bytes())
}

func (p *Printer) write(doc []byte) error {
	_, err := Document(p.Out, p.Terminal).Write(doc)
	return err
}

// plain is an object for templates; values of the board are their JSON text.
func plain(v any) any {
	switch v := v.(type) {
	case Object:
		m := make(map[string]any, len(v))
		for _, f := range v {
			m[f.Name] = plain(f.Value)
		}
		return m
	case []Object:
		out := make([]any, len(v))
		for i, o := range v {
			out[i] = plain(o)
		}
		return out
	case Raw:
		return string(v)
	}
	return v
}

// appendYAML writes block YAML whose scalars and board values are JSON, which YAML contains.
func appendYAML(dst []byte, v any, indent int) []byte {
	pad := strings.Repeat("  ", indent)
	switch v := v.(type) {
	case Object:
		for _, f := range v {
			dst = append(dst, pad...)
			dst = append(dst, f.Name...)
			dst = append(dst, ':')
			dst = appendYAMLMember(dst, f.Value, indent)
		}
	case []Object:
		for _, o := range v {
			item := appendYAML(nil, o, indent+1)
			if len(item) == 0 {
				item = []byte(pad + "  {}\n")
			}
			dst = append(append(dst, pad...), "- "...)
			dst = append(dst, item[len(pad)+2:]...)
		}
		if len(v) == 0 {
			dst = append(append(dst, pad...), "[]\n"...)
		}
	}
	return dst
}

func appendYAMLMember(dst []byte, v any, indent int) []byte {
	switch inner := v.(type) {
	case Object:
		if len(inner) == 0 {
			return append(dst, " {}\n"...)
		}
		return appendYAML(append(dst, '\n'), inner, indent+1)
	case []Object:
		if len(inner) == 0 {
			return append(dst, " []\n"...)
		}
		return appendYAML(append(dst, '\n'), inner, indent+1)
	}
	return append(AppendJSON(append(dst, ' '), v, true), '\n')
}
