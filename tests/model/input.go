package main

// The input of a run, which may change between attempts: a query that reads a clock, a table that is written, a file put in another's
// place. Rows are what is promised: at `complete` each row of one evaluation is in Kafka once, and no other.
//
// A ledger record holds the count and the digest of its slice's rows; here it holds the rows themselves, so a digest never collides.

import "fmt"

// Check is how a coordinator that finds slices committed compares their rows with those of its own input.
type Check uint8

const (
	checkNone   Check = iota
	checkFrozen       // one evaluation, made after the ledger was read behind the fencing: it is compared, and the tasks write from it
	checkApart        // compared in one evaluation, written from later ones
	checkEarly        // compared with the slices that were committed before the fencing
)

const (
	nRows  = 3
	absent = 3
)

// Input: the slice of each row, two bits each (absent: no such row), and how often each row is committed.
type Input struct {
	rows, changed uint8
	committed     [nRows]uint8
}

func place(rows uint8, row int) uint8 { return rows >> (2 * row) & 3 }

func put(rows uint8, row int, where uint8) uint8 { return rows&^(3<<(2*row)) | where<<(2*row) }

// firstInput: row 0 in slice 0, row 1 in slice 1, row 2 is yet to appear.
func (m Run) firstInput() uint8 {
	if m.Changes == 0 {
		return 0
	}
	return put(put(put(0, 0, 0), 1, 1), 2, absent)
}

// inSlice is the set of rows that an evaluation puts into a slice.
func inSlice(rows uint8, slice int) (set uint8) {
	for r := 0; r < nRows; r++ {
		if place(rows, r) == uint8(slice) {
			set |= 1 << r
		}
	}
	return
}

// changes: a row moves to another slice, vanishes or appears, at any moment.
func (m Run) changes(s *State, out step) {
	if s.input.changed == m.Changes {
		return
	}
	for r := 0; r < nRows; r++ {
		for _, where := range []uint8{0, 1, absent} {
			if where == place(s.input.rows, r) {
				continue
			}
			ns := *s
			ns.input.rows = put(s.input.rows, r, where)
			ns.input.changed++
			out(ns, "", "the input changes: %s", showRows(ns.input.rows))
		}
	}
}

// lookEarly (mutation): the slices that are known before the fencing, and the evaluation they are compared with.
func (m Run) lookEarly(s *State, x *Coord) {
	if m.Check != checkEarly {
		return
	}
	x.input = s.input.rows
	for _, p := range m.sliceParts() {
		d, _ := s.log[p].done(s.log[p].stable())
		x.early |= d
	}
}

// checkInput evaluates the input between the task count record and the stage, and goes on only if the committed slices have the same
// rows in it.
func (m Run) checkInput(s *State, c int, out step) {
	ns := *s
	x := &ns.co[c]
	compared := x.done
	if m.Check == checkEarly {
		compared &= x.early
	} else {
		x.input = s.input.rows
	}
	x.early = 0
	if m.Check != checkNone && m.unlike(s, x.input, compared) {
		*x = Coord{pc: cDead}
		out(ns, "", "coordinator %d: a committed slice has other rows in its input, refuses", c)
		return
	}
	x.pc, x.staged = cStage, 1
	out(ns, "", "coordinator %d: evaluates its input", c)
}

// unlike: some of these committed slices has other rows in this evaluation.
func (m Run) unlike(s *State, rows, slices uint8) bool {
	for i := 0; i < m.S; i++ {
		if slices&(1<<i) != 0 && s.log[m.part(i)].content(uint8(i)) != inSlice(rows, i) {
			return true
		}
	}
	return false
}

// endCheck evaluates the input once more, and compares every slice.
func (m Run) endCheck(s *State, c int) bool {
	s.co[c].input = s.input.rows
	return !m.unlike(s, s.input.rows, 1<<m.S-1)
}

// written is what a task of coordinator c finds in its slice.
func (m Run) written(s *State, c, slice int) uint8 {
	if m.Changes == 0 {
		return 0
	}
	if m.Recomputes || m.Check == checkApart {
		return inSlice(s.input.rows, slice)
	}
	return inSlice(s.co[c].input, slice)
}

// deliverRows: the rows of an id's open ledger record reach Kafka. Where tasks recompute, only `complete` promises something of them.
func (m Run) deliverRows(s *State, id uint8, slice int) string {
	bad := ""
	l := &s.log[m.part(slice)]
	for i := uint8(0); i < l.n; i++ {
		if e := l.e[i]; e.id != id || e.kind != kSlice || e.st == stCommitted || e.val&15 != uint8(slice) {
			continue
		}
		for r := 0; r < nRows; r++ {
			if l.e[i].val>>4&(1<<r) == 0 {
				continue
			}
			if s.input.committed[r]++; s.input.committed[r] > 1 && !m.Recomputes && !m.OnlyLost {
				bad = fmt.Sprintf("ROW DOUBLED: row %d is in Kafka twice", r)
			}
		}
	}
	return bad
}

// judgeRows: at `complete` what is in Kafka is the evaluation of the coordinator that completes.
func (m Run) judgeRows(s *State, c int) string {
	for r := 0; r < nRows; r++ {
		there, wanted := s.input.committed[r], place(s.co[c].input, r) != absent
		switch {
		case wanted && there == 0:
			return fmt.Sprintf("ROW LOST: complete without row %d", r)
		case m.OnlyLost:
		case there > 1:
			return fmt.Sprintf("ROW DOUBLED: complete with row %d twice", r)
		case !wanted && there > 0:
			return fmt.Sprintf("ROW LEFT OVER: complete with row %d, which the input no longer has", r)
		}
	}
	return ""
}

func showRows(rows uint8) string {
	text := ""
	for r := 0; r < nRows; r++ {
		where := "absent"
		if p := place(rows, r); p != absent {
			where = fmt.Sprintf("in slice %d", p)
		}
		text += fmt.Sprintf("row %d %s, ", r, where)
	}
	return text[:len(text)-2]
}
