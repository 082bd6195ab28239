package main

// Kafka as far as the protocol can see it.
//
// A partition is a log of entries; an entry belongs to a transactional id and is open, deciding (commit durable, marker of this
// partition not yet there) or committed. Aborted entries are removed at once: their only effect, blocking the last stable offset
// until the abort marker, is the same as a reader being slow. Removal shifts captured end offsets (fix).
// A transactional id has one holder: the process with the newest epoch. init = abort what is open, wait for a commit in progress
// (not enabled while markers are outstanding), take the holder's place. Epoch numbers are not needed: only "newest or not" matters.

const (
	pC   = 0 // config topic
	pK   = 1 // ledger partition of `complete`
	pS   = 2 // ledger partition(s) of the slices
	pS1  = 3
	nP   = 4
	nLog = 14

	bitData = 1 << 7 // marker of the data partition(s)

	stOpen      = 1
	stDeciding  = 2
	stCommitted = 3

	none = 0xff // no holder, end not captured
)

const (
	kGen      = 1 + iota // commit-<run>: val = coordinator (coordinators init in index order, so it orders like the offset)
	kCount               // tasks-fencing-<run>: val = task count
	kSlice               // ledger record of slice val&15; val>>4: the rows that it says are in the slice, a bit each
	kComplete            // `complete`
	kTombS               // tombstones of the slice records in this partition
	kTombC               // tombstones of the task records
	kDecision            // design B: val = chosen attempt + 1 of each task, 4 bits each
	kPlan                // admission model: val = run<<4 | version
	kTombPlan            // admission model: plan of run val removed
)

type Entry struct{ kind, val, id, st uint8 }

type Log struct {
	n uint8
	e [nLog]Entry
}

type Tx struct{ st, pend, holder uint8 } // st: 0 none, stOpen, stDeciding

func (l *Log) add(e Entry) {
	if l.n == nLog {
		panic("log too short")
	}
	l.e[l.n] = e
	l.n++
}

func (l *Log) remove(i uint8) {
	copy(l.e[i:], l.e[i+1:l.n])
	l.n--
	l.e[l.n] = Entry{}
}

// blocked: an open or deciding transaction has an entry below end, so the committed position cannot reach it.
func (l *Log) blocked(end uint8) bool {
	for i := uint8(0); i < end; i++ {
		if l.e[i].st != stCommitted {
			return true
		}
	}
	return false
}

// stable is the last stable offset.
func (l *Log) stable() uint8 {
	for i := uint8(0); i < l.n; i++ {
		if l.e[i].st != stCommitted {
			return i
		}
	}
	return l.n
}

func (l *Log) done(end uint8) (mask uint8, tomb bool) {
	for i := uint8(0); i < end; i++ {
		if l.e[i].st != stCommitted {
			continue
		}
		switch l.e[i].kind {
		case kSlice:
			mask |= 1 << (l.e[i].val & 15)
		case kTombS:
			mask, tomb = 0, true
		}
	}
	return
}

// content is what the last ledger record of a slice says of its rows.
func (l *Log) content(slice uint8) (rows uint8) {
	for i := uint8(0); i < l.n; i++ {
		if e := l.e[i]; e.st == stCommitted && e.kind == kSlice && e.val&15 == slice {
			rows = e.val >> 4
		}
	}
	return
}

// finished: the task records were removed after the last generation.
func (l *Log) finished(end uint8) (yes bool) {
	for i := uint8(0); i < end; i++ {
		if l.e[i].st == stCommitted && l.e[i].kind == kGen {
			yes = false
		} else if l.e[i].st == stCommitted && l.e[i].kind == kTombC {
			yes = true
		}
	}
	return
}

func (l *Log) last(end, kind uint8) (val uint8, ok bool) {
	for i := uint8(0); i < end; i++ {
		if l.e[i].st == stCommitted && l.e[i].kind == kind {
			val, ok = l.e[i].val, true
		}
	}
	return
}
