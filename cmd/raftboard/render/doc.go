// Package render puts answers on paper: one answer, seven forms.
//
// A command builds one View: an Object (what machines read) and a Table (what people read).
// The Printer picks the form that -o asks for. Two rules hold in every form. A value of the
// board is embedded byte for byte, never decoded and encoded again, so numbers keep their
// text. And whatever reaches a terminal is escaped first, because everything on a board was
// written by somebody else; a pipe gets the bytes as they are.
//
// Columns are plain text without borders: they survive grep and awk. Colour is added after
// escaping, only on a terminal, and never carries a meaning that the text does not.
package render
