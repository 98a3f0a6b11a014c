package view

import (
	"fmt"
	"strings"

	boardpb "raftboard/fsm/pb"
)

// shortestLine is less than any line of an entry has: a time, a key, a version, an author.
const shortestLine = 40

// whole is the item's line in full.
func (it *item) whole() rendered {
	if it.full == nil {
		line := join(plain(it.lead()+": "), harmlessJSON(it.entry.Value))
		it.full = &line
	}
	return *it.full
}

func join(x, y rendered) rendered { return rendered{x.text + y.text, x.chars + y.chars} }

// lead says when, what and who, and whether it rests on something that was invalidated, before
// any character that an agent chose (SPEC VW-8, F-31).
func (it *item) lead() string { return leadOf(it.entry) + rests(it.board.Mark(it.entry)) }

// leadOf says when an entry was written, which one it is, and by whom.
func leadOf(e *boardpb.Entry) string {
	via := ""
	if e.ActingFor != "" {
		via = " via " + e.ActingFor
	}
	return fmt.Sprintf("- %s %s@%d by %s%s", wall(e.WallMs), e.Key, e.Version, e.Author, via)
}

// restsNamed is how many invalidated records a line names; raftboard trace tells all.
const restsNamed = 2

// rests is what a line says of what its entry rests on.
func rests(m *boardpb.Mark) string {
	if m == nil || len(m.RestsOn) == 0 && !m.More {
		return ""
	}
	named := m.RestsOn[:min(len(m.RestsOn), restsNamed)]
	more := ""
	if m.More || len(m.RestsOn) > len(named) {
		more = " and more"
	}
	return " [rests on invalidated " + strings.Join(named, ", ") + more + "]"
}

// stubChars is how much of a value a stub shows at least.
const stubChars = 40

// shorten cuts the value of an entry, so that its line has about most characters, at least
// those of a stub. It says before the value how much is gone and where the rest is, so no
// value can say it falsely; then what the writer says of it in a line, if there is room (SPEC
// BB-5). A line that cutting does not shorten is left whole.
func shorten(it *item, most int) rendered {
	e, whole := it.entry, it.whole()
	value := harmlessJSON(e.Value)
	note := func(removed int) string {
		return fmt.Sprintf("%s [cut: %d of %d characters, rest in %s@%d]: ", it.lead(), removed, value.chars, e.Key, e.Version)
	}
	summary := plain("")
	if e.Summary != "" {
		summary = join(harmlessText(e.Summary), plain(" — "))
		if len(note(value.chars))+summary.chars+stubChars > most {
			summary = plain("")
		}
	}
	keep := max(most-len(note(value.chars))-summary.chars, stubChars)
	cut, removed := value.cut(keep)
	if removed == 0 {
		return whole
	}
	if line := join(join(plain(note(removed)), summary), cut); line.chars < whole.chars {
		return line
	}
	return whole
}

// wall shows a wall time as RFC 3339 in UTC with milliseconds. The state machine has no
// clock and no calendar of the library; this one is the proleptic Gregorian.
func wall(ms int64) string {
	days, rest := floorDiv(ms, 86_400_000)
	year, month, day := civil(days)
	return fmt.Sprintf("%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", year, month, day,
		rest/3_600_000, rest/60_000%60, rest/1000%60, rest%1000)
}

func floorDiv(a, b int64) (quotient, remainder int64) {
	quotient, remainder = a/b, a%b
	if remainder < 0 {
		return quotient - 1, remainder + b
	}
	return quotient, remainder
}

// civil is the date that lies so many days behind 1970-01-01: the calendar is counted from
// March, in eras of 400 years, which all have 146,097 days.
func civil(days int64) (year, month, day int64) {
	era, dayOfEra := floorDiv(days+719_468, 146_097)
	yearOfEra := (dayOfEra - dayOfEra/1460 + dayOfEra/36_524 - dayOfEra/146_096) / 365
	dayOfYear := dayOfEra - (365*yearOfEra + yearOfEra/4 - yearOfEra/100)
	shifted := (5*dayOfYear + 2) / 153
	day = dayOfYear - (153*shifted+2)/5 + 1
	month = shifted + 3
	if month > 12 {
		month -= 12
	}
	year = yearOfEra + era*400
	if month <= 2 {
		year++
	}
	return year, month, day
}
