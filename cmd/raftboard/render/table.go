package render

import (
	"io"
	"strings"

	"charm.land/lipgloss/v2"
	"unicode/utf8"
)

// Style says what a cell means; the text must say it too.
type Style int

// The styles.
const (
	Plain Style = iota
	Good
	Warn
	Bad
	Dim
)

// Column is the head of a column. A Wide column is shown by -o wide only.
type Column struct {
	Head string
	Wide bool
}

// Cell is text with a meaning.
type Cell struct {
	Text  string
	Style Style
}

// Table is rows under columns. Rows may be shorter than Columns.
type Table struct {
	Columns []Column
	Rows    [][]Cell
	Title   string // one line above; for people only
	Empty   string // said instead of a table without rows
}

// Cols makes columns of names; a name that begins with "+" is a wide one.
func Cols(names ...string) []Column {
	out := make([]Column, len(names))
	for i, name := range names {
		head, wide := strings.CutPrefix(name, "+")
		out[i] = Column{Head: head, Wide: wide}
	}
	return out
}

// Row appends a row of plain cells.
func (t *Table) Row(texts ...string) {
	row := make([]Cell, len(texts))
	for i, text := range texts {
		row[i] = Cell{Text: text}
	}
	t.Rows = append(t.Rows, row)
}

// paper is how a table is drawn.
type paper struct {
	wide, headers, terminal, color bool
	widths                         []int // kept between rows of a stream; grows
}

// gap separates two columns.
const gap = "  "

// draw writes the whole table.
func (p *paper) draw(w io.Writer, t *Table) error {
	cells := make([][]Cell, 0, len(t.Rows))
	for _, row := range t.Rows {
		cells = append(cells, p.visible(t.Columns, row))
	}
	heads := p.heads(t.Columns)
	p.measure(heads)
	for _, row := range cells {
		p.measure(row)
	}
	var b strings.Builder
	if p.headers && len(heads) > 0 {
		p.line(&b, heads)
	}
	for _, row := range cells {
		p.line(&b, row)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (p *paper) heads(columns []Column) []Cell {
	var out []Cell
	for _, c := range columns {
		if !c.Wide || p.wide {
			out = append(out, Cell{Text: c.Head, Style: Dim})
		}
	}
	return out
}

// visible drops wide columns and makes every cell one safe line.
func (p *paper) visible(columns []Column, row []Cell) []Cell {
	var out []Cell
	for i, c := range columns {
		if c.Wide && !p.wide {
			continue
		}
		cell := Cell{}
		if i < len(row) {
			cell = row[i]
		}
		cell.Text = p.text(cell.Text)
		out = append(out, cell)
	}
	return out
}

func (p *paper) text(s string) string {
	s = strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ", "\t", " ").Replace(s)
	if p.terminal {
		s = Safe(s)
	}
	return Or(s)
}

func (p *paper) measure(row []Cell) {
	for len(p.widths) < len(row) {
		p.widths = append(p.widths, 0)
	}
	for i, cell := range row {
		p.widths[i] = max(p.widths[i], utf8.RuneCountInString(cell.Text))
	}
}

func (p *paper) line(b *strings.Builder, row []Cell) {
	for i, cell := range row {
		b.WriteString(p.paint(cell))
		if i == len(row)-1 {
			break // no trailing blanks
		}
		b.WriteString(strings.Repeat(" ", p.widths[i]-utf8.RuneCountInString(cell.Text)))
		b.WriteString(gap)
	}
	b.WriteByte('\n')
}

func (p *paper) paint(c Cell) string {
	if !p.color || c.Style == Plain {
		return c.Text
	}
	style := lipgloss.NewStyle()
	switch c.Style {
	case Good:
		style = style.Foreground(lipgloss.Color("2"))
	case Warn:
		style = style.Foreground(lipgloss.Color("3"))
	case Bad:
		style = style.Foreground(lipgloss.Color("1"))
	case Dim:
		style = style.Faint(true)
	}
	return style.Render(c.Text)
}
