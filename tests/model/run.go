package main

// One run of one interval: coordinators (an old driver, its retry, a concurrent duplicate), their Spark task attempts, design A and B.
//
// A crash is a process that is never scheduled again, so safety needs no crash step. Coordinators init in index order (that is only a
// naming of them); everything else interleaves freely. A coordinator that passed its task count record may start attempts at any later
// time, also after it was fenced, also after the run is complete.

import (
	"fmt"
	"strings"
)

const (
	maxC, maxT, maxA = 3, 2, 2
	nA               = maxC * maxT * maxA
	nID              = 1 + maxT // transactional ids: 0 coordinator, 1+t task t
)

type Cfg struct {
	Name       string
	K          int       // coordinators
	T          [maxC]int // tasks of each
	S          int       // slices
	A          int       // attempts per task
	Atomic     bool      // design B
	SliceParts int       // ledger partitions that hold slices (1 or 2)
	OneLedger  bool      // `complete` lives in the slices' partition
	TaskReads  []uint8   // order in which a task captures and reads after init
	D2, D5     []uint8   // order of the coordinator's reads
	// variations of the protocol
	D2Ledger      string // "end": to the end (blocks); "stable": as far as it is stable
	FinalFence    bool   // fence the own ids once more before the last ledger read
	PreCheck      bool   // task reads the generation before init too
	TombStop      bool   // a tombstone of an own slice means: finished
	TombGen       bool   // completing also removes generation and count records
	Fresh         bool   // a read ends only when an end asked for after its last fetch is already reached
	NoTasksIsDone bool   // D2: a generation whose task records are gone is complete (both go in one transaction, which init has settled)
	OwnGenStops   bool   // a task that does not find its own generation's record (or a newer one) stops
	Abandon       string // the last coordinator abandons a plan without slices: "fenced" after D1-D5, "bare" after D1, D2 only
	DecisionStops bool   // B: a decision of the task's own generation stops it
	// the input (input.go)
	Changes    uint8 // how often a row of the input moves, vanishes or appears; 0: the input is no part of the model
	Check      Check // how a coordinator that finds slices committed compares their rows with its own
	Recomputes bool  // the tasks of a generation do not share one evaluation: parts of it that were lost are made again
	EndCheck   bool  // all slices are compared with one evaluation before `complete`
	OnlyLost   bool  // question: report lost rows only
	// environment
	Timeouts    bool // brokers may abort any open transaction
	Compaction  bool
	Lag         bool // min.compaction.lag.ms outlasts every read: no record below a captured end goes on behalf of one above it
	DataMarkers bool
	// mutations
	FenceBeforeGen, SkipD5, CommittedEnd, ReadBeforeInit, SeparateLedger, FenceNewCount, TaskSkipsLedger,
	IgnoreDecision, FenceBeforeDecision, NoFallback, SliceMoves bool
	// questions
	StuckDecided                                                                       bool // report only what is stuck with a durable decision
	CheckStuck, CheckBarrier, CheckWhole, CheckAtomic, CheckKill, OnlyOnce, StrictNoop bool
}

// coordinator program counters
const (
	cNew = iota
	cRead2
	cAct // B: resend EndTxn for a decision found
	cGen
	cGenOpen
	cFence
	cRead5
	cCount
	cCountOpen
	cStage
	cDecOpen
	cEnd
	cFin
	cLast
	cComplOpen
	cDone
	cNoop
	cDead
	cAbandon
	cAbandonOpen
	cCheck
)

var cName = []string{"new", "D2 read", "resend EndTxn", "D3 gen", "D3 open", "D4 fence", "D5 read", "D6 count", "D6 open", "D7 stage",
	"decision open", "EndTxn", "final fence", "D8 read", "D8 open", "done", "no-op", "dead", "abandon due", "abandon open", "input check"}

// attempt program counters
const (
	aIdle = iota
	aPre
	aInit
	aRead
	aWork
	aOpen
	aLedger // mutation: data committed, ledger record still to come
	aLedgerOpen
	aReported // B: prepared and reported
	aReportedLost
	aDone
	aDead
)

var aName = []string{"-", "pre-check", "init due", "reading", "work", "open", "ledger due", "ledger open", "prepared", "prepared (lost)", "done", "dead"}

type Coord struct{ pc, rd, end, r, done, mask, fenced, staged, past4, useA, dec, input, early uint8 }
type Att struct{ pc, rd, end, todo uint8 }

type State struct {
	log    [nP]Log
	tx     [nID]Tx
	co     [maxC]Coord
	at     [nA]Att
	count  [4]uint8
	finish uint8 // completing transaction decided
	decide uint8 // B: a decision is durable
	gaveUp uint8 // the plan is abandoned
	input  Input // what a driver would read now
}

type Run struct{ Cfg }

func att(c, t, k int) int       { return (c*maxT+t)*maxA + k }
func attOf(i int) (c, t, k int) { return i / (maxT * maxA), i / maxA % maxT, i % maxA }

func (m Run) part(s int) uint8 {
	if m.SliceParts == 2 && s%2 == 1 {
		return pS1
	}
	return pS
}

func (m Run) pComplete() uint8 {
	if m.OneLedger {
		return pS
	}
	return pK
}

func (m Run) sliceParts() []uint8 {
	if m.SliceParts == 2 {
		return []uint8{pS, pS1}
	}
	return []uint8{pS}
}

func (m Run) owner(s, c int) int {
	return s % m.T[c]
}

func (m Run) mine(s *State, c, t int) uint8 {
	var mask uint8
	for i := 0; i < m.S; i++ {
		if m.owner(i, c) == t || m.SliceMoves {
			mask |= 1 << i
		}
	}
	return mask &^ s.co[c].done
}

func (m Run) Init() State {
	var s State
	for i := range s.tx {
		s.tx[i].holder = none
	}
	s.input.rows = m.firstInput()
	return s
}

// --- transactions ---------------------------------------------------------------------------------------------------------------

func (m Run) fix(s *State, p, i uint8) { // entry i of p removed: shift captured ends
	for a := range s.at {
		x := &s.at[a]
		c, _, _ := attOf(a)
		if x.end != none && x.end > i && (x.pc == aRead && m.taskReads(s, c, x.rd) == p || x.pc == aPre && p == pC) {
			x.end--
		}
	}
	for c := range s.co {
		x := &s.co[c]
		if x.end != none && x.end > i && ((x.pc == cRead2 && m.D2[x.rd] == p) || (x.pc == cRead5 && m.D5[x.rd] == p)) {
			x.end--
		}
	}
}

// taskReads is the partition that a task of coordinator c reads at place rd; prepared tasks (B) read the generation only, for the
// siblings' prepared transactions hold the ledger until the decision, which waits for this task.
func (m Run) taskReads(s *State, c int, rd uint8) uint8 {
	if m.prepares(s, c) {
		return pC
	}
	return m.TaskReads[rd]
}

// prepares: after a decision was found, the missing slices are written as in A; NoFallback prepares them again.
func (m Run) prepares(s *State, c int) bool { return m.Atomic && (s.co[c].useA != 1 || m.NoFallback) }

func (m Run) removeOpen(s *State, id uint8) {
	for p := uint8(0); p < nP; p++ {
		for i := uint8(0); i < s.log[p].n; {
			if s.log[p].e[i].id == id && s.log[p].e[i].st == stOpen {
				s.log[p].remove(i)
				m.fix(s, p, i)
			} else {
				i++
			}
		}
	}
	s.tx[id].st = 0
}

func (m Run) dethrone(s *State, id uint8) {
	h := s.tx[id].holder
	s.tx[id].holder = none
	if h == none {
		return
	}
	if id == 0 {
		c := &s.co[h]
		c.fenced = 1
		switch c.pc {
		case cAct, cFence, cEnd, cFin: // these go on doing harm
		case cStage, cDecOpen, cLast, cComplOpen, cDone:
			if c.pc != cDone {
				c.pc, c.rd, c.end = cStage, 0, 0
			}
		default:
			c.pc, c.rd, c.end, c.mask, c.r = cDead, 0, 0, 0, 0
		}
		return
	}
	a := &s.at[h]
	switch a.pc {
	case aReported:
		*a = Att{pc: aReportedLost}
	case aDone:
	default:
		*a = Att{pc: aDead}
	}
}

func (s *State) canInit(id uint8) bool { return s.tx[id].st != stDeciding }

func (m Run) init(s *State, id, holder uint8) {
	if s.tx[id].st == stOpen {
		m.removeOpen(s, id)
	}
	m.dethrone(s, id)
	s.tx[id].holder = holder
}

func (s *State) produce(p, kind, val, id uint8) {
	s.tx[id].st = stOpen
	s.log[p].add(Entry{kind, val, id, stOpen})
}

func (m Run) commit(s *State, id uint8, data bool) {
	t := &s.tx[id]
	t.st, t.pend = stDeciding, 0
	for p := uint8(0); p < nP; p++ {
		for i := uint8(0); i < s.log[p].n; i++ {
			e := &s.log[p].e[i]
			if e.id == id && e.st == stOpen {
				e.st = stDeciding
				t.pend |= 1 << p
			}
		}
	}
	if data && m.DataMarkers {
		t.pend |= bitData
	}
	if t.pend == 0 {
		t.st = 0
	}
}

func (s *State) marker(p, id uint8) {
	for i := uint8(0); i < s.log[p].n; i++ {
		e := &s.log[p].e[i]
		if e.id == id && e.st == stDeciding {
			e.st = stCommitted
		}
	}
	s.tx[id].pend &^= 1 << p
	if s.tx[id].pend == 0 {
		s.tx[id].st = 0
	}
}

// --- what a committed slice means ------------------------------------------------------------------------------------------------

func (m Run) deliver(s *State, c int, mask uint8) string {
	bad := ""
	if s.gaveUp != 0 {
		return "ABANDONED: a slice is committed after its plan was abandoned"
	}
	for i := 0; i < m.S; i++ {
		if mask&(1<<i) != 0 {
			s.count[i]++
			if s.count[i] > 1 {
				bad = fmt.Sprintf("DUPLICATE: slice %d committed twice", i)
			}
		}
	}
	if bad != "" {
		return bad
	}
	for d := c + 1; d < m.K && !m.OnlyOnce; d++ {
		if s.co[d].past4 != 0 && c < d {
			return fmt.Sprintf("OLD GENERATION: attempt of coordinator %d commits after coordinator %d finished fencing", c, d)
		}
	}
	if m.CheckAtomic && s.decide == 0 {
		return "EARLY: data visible without a decision"
	}
	return ""
}

// --- successors --------------------------------------------------------------------------------------------------------------------

func (m Run) Next(s *State, emit func(*State, func() string, string)) {
	out := func(ns State, bad string, f string, a ...any) {
		m.canon(&ns)
		emit(&ns, func() string { return fmt.Sprintf(f, a...) }, bad)
	}
	if m.CheckStuck {
		if why := m.stuck(s); why != "" {
			out(*s, why, "nothing of the last coordinator or its tasks can move")
			return
		}
	}
	for c := 0; c < m.K; c++ {
		m.coordinator(s, c, out)
	}
	for i := 0; i < nA; i++ {
		c, t, k := attOf(i)
		if c < m.K && t < m.T[c] && k < m.A {
			m.attempt(s, i, c, t, k, out)
		}
	}
	m.kafka(s, out)
	m.changes(s, out)
}

type step func(ns State, bad string, f string, a ...any)

func (m Run) kafka(s *State, out step) {
	for id := uint8(0); id < nID; id++ {
		if s.tx[id].st == stDeciding {
			for p := uint8(0); p < nP; p++ {
				if s.tx[id].pend&(1<<p) != 0 {
					ns := *s
					completing := p == m.pComplete() && id == 0
					ns.marker(p, id)
					bad := ""
					if _, c := ns.log[p].last(ns.log[p].n, kComplete); completing && c && m.CheckBarrier {
						for j := range ns.tx {
							if ns.tx[j].pend&bitData != 0 {
								bad = "BARRIER: `complete` is visible, the data of the last slice is not"
							}
						}
					}
					out(ns, bad, "marker of %s appears in %s", idName(id), pName(p))
				}
			}
			if s.tx[id].pend&bitData != 0 {
				ns := *s
				ns.tx[id].pend &^= bitData
				if ns.tx[id].pend == 0 {
					ns.tx[id].st = 0
				}
				out(ns, "", "marker of %s appears in the data partition", idName(id))
			}
		}
		if m.Timeouts && s.tx[id].st == stOpen {
			ns := *s
			m.removeOpen(&ns, id)
			m.dethrone(&ns, id)
			out(ns, "", "transaction of %s times out", idName(id))
		}
	}
	if m.Compaction {
		for p := uint8(0); p < nP; p++ {
			ns := *s
			if m.compact(&ns, p) {
				out(ns, "", "compaction of %s", pName(p))
			}
			ns = *s
			if m.dropTombs(&ns, p) {
				out(ns, "", "tombstones vanish from %s", pName(p))
			}
		}
	}
}

func (m Run) compact(s *State, p uint8) bool {
	l := &s.log[p]
	hit := false
	for i := uint8(0); i < l.stable(); {
		e, st, gone := l.e[i], l.stable(), false
		for j := i + 1; j < st; j++ {
			f := l.e[j]
			if m.Lag && m.reader(s, p, i, j) {
				continue
			}
			switch e.kind {
			case kSlice:
				gone = gone || f.kind == kTombS || f.kind == kSlice && f.val&15 == e.val&15
			case kGen, kCount:
				gone = gone || f.kind == e.kind || f.kind == kTombC && m.TombGen
			}
		}
		if gone {
			l.remove(i)
			m.fix(s, p, i)
			hit = true
		} else {
			i++
		}
	}
	return hit
}

// reader: somebody reads p towards an end that lies above i but not above j.
func (m Run) reader(s *State, p, i, j uint8) bool {
	for a := range s.at {
		x := &s.at[a]
		c, _, _ := attOf(a)
		if x.end != none && x.end > i && x.end <= j && (x.pc == aRead && m.taskReads(s, c, x.rd) == p || x.pc == aPre && p == pC) {
			return true
		}
	}
	return false
}

func (m Run) dropTombs(s *State, p uint8) bool {
	l := &s.log[p]
	for i := uint8(0); i < l.stable(); i++ {
		if k := l.e[i].kind; k == kTombS || k == kTombC && !m.NoTasksIsDone { // with it, kTombC stands for "no task records"
			for j := uint8(0); j < i; j++ {
				if k == kTombS && l.e[j].kind == kSlice || k == kTombC && m.TombGen && (l.e[j].kind == kGen || l.e[j].kind == kCount) {
					return false
				}
			}
			l.remove(i)
			m.fix(s, p, i)
			return true
		}
	}
	return false
}

// read takes one read-to-end step: capture the end, or (nothing in the way) consume up to it. ok: consumed, prefix [0,end).
func (m Run) read(l *Log, end *uint8) (upto uint8, ok, moved bool) {
	if m.CommittedEnd {
		return l.stable(), true, true
	}
	if *end == none {
		if !l.blocked(l.n) {
			return l.n, true, true
		}
		*end = l.n
		return 0, false, true
	}
	if l.blocked(*end) {
		return 0, false, false
	}
	if m.Fresh && l.n > *end {
		*end = l.n
		if l.blocked(l.n) {
			return 0, false, true
		}
	}
	upto = *end
	*end = none
	return upto, true, true
}

func (m Run) coordinator(s *State, c int, out step) {
	co := s.co[c]
	ns := *s
	x := &ns.co[c]
	switch co.pc {
	case cNew:
		if (c == 0 || s.co[c-1].pc != cNew) && s.canInit(0) {
			m.init(&ns, 0, uint8(c))
			*x = Coord{pc: cRead2, end: none}
			out(ns, "", "coordinator %d: init (D1)", c)
		}
	case cRead2:
		p := m.D2[co.rd]
		l := &ns.log[p]
		upto, ok, moved := uint8(0), false, true
		if p != pC && m.D2Ledger == "stable" {
			upto, ok = l.stable(), true
		} else {
			upto, ok, moved = m.read(l, &x.end)
		}
		if !moved {
			return
		}
		if !ok {
			out(ns, "", "coordinator %d: D2 takes the end of %s, must wait", c, pName(p))
			return
		}
		if _, f := l.last(upto, kComplete); f {
			*x = Coord{pc: cNoop}
			out(ns, "", "coordinator %d: D2 finds complete, no-op", c)
			return
		}
		if p == pC {
			if m.NoTasksIsDone && l.finished(upto) {
				*x = Coord{pc: cNoop}
				out(ns, "", "coordinator %d: D2 finds a generation without task records, no-op", c)
				return
			}
			if v, f := l.last(upto, kCount); f {
				x.r = v
			}
			if v, f := l.last(upto, kDecision); f && m.Atomic && !m.IgnoreDecision {
				x.dec, x.useA = v, 1
			}
		} else if m.SkipD5 {
			d, _ := l.done(upto)
			x.done |= d
		}
		x.rd++
		if int(x.rd) == len(m.D2) {
			x.rd, x.end = 0, 0
			x.pc = cGen
			m.lookEarly(&ns, x)
			if m.Abandon == "bare" && c == m.K-1 {
				x.pc = cAbandon
				for _, q := range m.sliceParts() {
					if d, _ := ns.log[q].done(ns.log[q].stable()); d != 0 {
						*x = Coord{pc: cDead}
					}
				}
			}
			if m.FenceBeforeGen {
				x.pc, x.mask = cFence, 1<<x.r-1
			}
			if x.useA != 0 && !m.FenceBeforeDecision {
				x.pc, x.mask = cAct, m.triples(x.dec)
			}
		}
		out(ns, "", "coordinator %d: D2 has read %s (r=%d)", c, pName(p), x.r)
	case cAct, cEnd:
		m.endTxn(s, c, out)
	case cGen:
		if s.tx[0].st != 0 {
			return
		}
		ns.produce(pC, kGen, uint8(c), 0)
		x.pc = cGenOpen
		bad := ""
		if s.finish != 0 && (m.D2Ledger != "stable" || m.NoTasksIsDone || m.StrictNoop) {
			bad = "NOT A NO-OP: a new generation after complete"
		}
		out(ns, bad, "coordinator %d: D3 writes generation", c)
	case cGenOpen:
		m.commit(&ns, 0, false)
		n := co.r
		if m.FenceNewCount {
			n = uint8(m.T[c])
		}
		x.pc, x.mask = cFence, 1<<n-1
		if m.FenceBeforeGen {
			m.afterFence(x)
		}
		if x.mask == 0 && !m.FenceBeforeGen {
			m.afterFence(x)
		}
		out(ns, "", "coordinator %d: D3 commits generation", c)
	case cFence:
		if co.mask == 0 && m.FenceBeforeGen {
			if co.fenced != 0 {
				return
			}
			x.pc = cGen
			out(ns, "", "coordinator %d: fencing before generation done", c)
			return
		}
		for t := uint8(0); t < maxT; t++ {
			if co.mask&(1<<t) != 0 && s.canInit(1+t) {
				ns := *s
				x := &ns.co[c]
				m.init(&ns, 1+t, none)
				x.mask &^= 1 << t
				if x.mask == 0 && !m.FenceBeforeGen {
					m.afterFence(x)
				}
				out(ns, "", "coordinator %d: D4 fences task id %d", c, t)
			}
		}
	case cRead5:
		p := m.D5[co.rd]
		upto, ok, moved := m.read(&ns.log[p], &x.end)
		if !moved {
			return
		}
		if !ok {
			out(ns, "", "coordinator %d: D5 takes the end of %s, must wait", c, pName(p))
			return
		}
		if _, f := ns.log[p].last(upto, kComplete); f {
			*x = Coord{pc: cNoop}
			out(ns, "", "coordinator %d: D5 finds complete, no-op", c)
			return
		}
		d, _ := ns.log[p].done(upto)
		x.done |= d
		x.rd++
		if int(x.rd) == len(m.D5) {
			x.pc, x.rd, x.end = cCount, 0, 0
			if m.Abandon == "fenced" && c == m.K-1 && x.done == 0 {
				x.pc = cAbandon
			}
		}
		out(ns, "", "coordinator %d: D5 has read %s (done=%b)", c, pName(p), x.done)
	case cCheck:
		m.checkInput(s, c, out)
	case cAbandon:
		if s.tx[0].st == 0 {
			ns.produce(pC, kTombC, 0, 0)
			x.pc = cAbandonOpen
			out(ns, "", "coordinator %d: removes the plan", c)
		}
	case cAbandonOpen:
		m.commit(&ns, 0, false)
		ns.gaveUp = 1
		x.pc = cDone
		out(ns, "", "coordinator %d: the plan is abandoned", c)
	case cCount:
		if s.tx[0].st != 0 {
			return
		}
		ns.produce(pC, kCount, uint8(m.T[c]), 0)
		x.pc = cCountOpen
		bad := ""
		if s.finish != 0 {
			bad = "NOT A NO-OP: a task count record, so a stage, after complete"
		}
		out(ns, bad, "coordinator %d: D6 writes task count %d", c, m.T[c])
	case cCountOpen:
		m.commit(&ns, 0, false)
		x.pc, x.staged = cStage, 1
		if m.Changes > 0 {
			x.pc, x.staged = cCheck, 0
		}
		out(ns, "", "coordinator %d: D6 commits task count", c)
	case cStage:
		if co.fenced != 0 {
			return
		}
		if m.Atomic && (co.useA == 0 || co.useA == 1 && m.NoFallback) {
			m.decide(s, c, 0, 0, out)
		}
		if m.Atomic && co.useA == 0 && co.done != 1<<m.S-1 && co.dec == 0 {
			return // no ledger read before the decision
		}
		if m.FinalFence {
			if m.ready(s) {
				x.pc, x.mask = cFin, 1<<m.T[c]-1
				out(ns, "", "coordinator %d: stage over, final fence begins", c)
			}
			return
		}
		m.finishing(s, c, out)
	case cFin:
		for t := uint8(0); t < maxT; t++ {
			if co.mask&(1<<t) != 0 && s.canInit(1+t) {
				ns := *s
				x := &ns.co[c]
				m.init(&ns, 1+t, none)
				x.mask &^= 1 << t
				if x.mask == 0 {
					x.pc = cLast
					if x.fenced != 0 {
						x.pc = cStage
					}
				}
				out(ns, "", "coordinator %d: final fence of task id %d", c, t)
			}
		}
	case cLast:
		m.finishing(s, c, out)
	case cDecOpen:
		m.commit(&ns, 0, false)
		ns.decide = 1
		x.pc, x.mask = cEnd, m.triples(co.dec)
		out(ns, "", "coordinator %d: decision is durable", c)
	case cComplOpen:
		m.commit(&ns, 0, false)
		ns.finish = 1
		x.pc = cDone
		bad := ""
		for i := 0; i < m.S; i++ {
			if s.count[i] == 0 {
				bad = fmt.Sprintf("MISSING: complete without slice %d", i)
			}
		}
		if bad == "" && m.Changes > 0 {
			bad = m.judgeRows(s, c)
		}
		out(ns, bad, "coordinator %d: D8 commits complete + tombstones", c)
	}
}

func (m Run) afterFence(x *Coord) {
	x.past4, x.mask = 1, 0
	if m.FenceBeforeDecision && x.useA == 1 && x.pc != cAct {
		x.pc, x.mask = cAct, m.triples(x.dec)
		return
	}
	if x.fenced != 0 {
		x.pc = cDead
		return
	}
	x.pc, x.rd, x.end = cRead5, 0, none
	if m.SkipD5 {
		x.pc, x.end = cCount, 0
	}
}

func (m Run) ready(s *State) bool { // every slice visibly done, in what is stable (a slower read sees the same later)
	var d uint8
	for _, p := range m.sliceParts() {
		end := s.log[p].stable()
		if m.CheckStuck {
			end = s.log[p].n
			if s.log[p].blocked(end) {
				return false
			}
		}
		x, _ := s.log[p].done(end)
		d |= x
	}
	return d == 1<<m.S-1
}

func (m Run) finishing(s *State, c int, out step) {
	if s.tx[0].st != 0 || !m.ready(s) {
		return
	}
	ns := *s
	if m.EndCheck && !m.endCheck(&ns, c) {
		ns.co[c] = Coord{pc: cDead}
		out(ns, "", "coordinator %d: its input is not what the slices have, refuses", c)
		return
	}
	ns.produce(m.pComplete(), kComplete, 0, 0)
	for _, p := range m.sliceParts() {
		ns.produce(p, kTombS, 0, 0)
	}
	ns.produce(pC, kTombC, 0, 0)
	ns.co[c].pc = cComplOpen
	out(ns, "", "coordinator %d: D8 reads all done, produces complete + tombstones", c)
}

// --- design B ------------------------------------------------------------------------------------------------------------------------

func (m Run) triples(dec uint8) uint8 {
	var mask uint8
	for t := 0; t < maxT; t++ {
		if dec>>(4*t)&15 != 0 {
			mask |= 1 << t
		}
	}
	return mask
}

// decide writes the decision once each task with work has a reported attempt (which may be fenced meanwhile: the driver cannot know).
func (m Run) decide(s *State, c, t int, dec uint8, out step) {
	if t == m.T[c] {
		if dec == 0 || s.tx[0].st != 0 {
			return
		}
		ns := *s
		ns.produce(pC, kDecision, dec, 0)
		ns.co[c].pc, ns.co[c].dec = cDecOpen, dec
		out(ns, "", "coordinator %d: writes decision %x", c, dec)
		return
	}
	if m.mine(s, c, t) == 0 {
		m.decide(s, c, t+1, dec, out)
		return
	}
	for k := 0; k < m.A; k++ {
		if a := att(c, t, k); s.at[a].pc == aReported || s.at[a].pc == aReportedLost {
			m.decide(s, c, t+1, dec|uint8(a+1)<<(4*t), out)
		}
	}
}

func (m Run) endTxn(s *State, c int, out step) {
	co := s.co[c]
	if co.mask == 0 {
		ns := *s
		x := &ns.co[c]
		if co.pc == cEnd {
			x.pc = cStage
			if co.fenced == 0 {
				x.useA = 2 // D8 may follow; no new stage here: a missing slice needs a new generation
			}
		} else {
			x.pc = cGen
			if co.fenced != 0 {
				x.pc = cDead
			}
			if m.FenceBeforeDecision {
				m.afterFence(x)
			}
		}
		out(ns, "", "coordinator %d: all EndTxn answered", c)
		return
	}
	for t := 0; t < maxT; t++ {
		if co.mask&(1<<t) == 0 {
			continue
		}
		a := int(co.dec>>(4*t)&15) - 1
		id := uint8(1 + t)
		ns := *s
		ns.co[c].mask &^= 1 << t
		if s.tx[id].holder == uint8(a) && s.tx[id].st == stOpen && s.at[a].pc == aReported {
			oc, _, _ := attOf(a)
			bad := m.deliver(&ns, oc, s.at[a].todo)
			m.commit(&ns, id, true)
			ns.at[a] = Att{pc: aDone}
			out(ns, bad, "coordinator %d: EndTxn(commit) for task id %d accepted", c, t)
		} else {
			bad := ""
			if m.CheckWhole && s.at[a].pc != aDone {
				bad = "PARTIAL: a decided transaction cannot be committed any more"
			}
			out(ns, bad, "coordinator %d: EndTxn(commit) for task id %d refused or repeated", c, t)
		}
	}
}

// --- tasks -----------------------------------------------------------------------------------------------------------------------------

func (m Run) attempt(s *State, i, c, t, k int, out step) {
	a := s.at[i]
	id := uint8(1 + t)
	ns := *s
	x := &ns.at[i]
	begin := func(f string) {
		if !s.canInit(id) {
			return
		}
		bad := ""
		if h := s.tx[id].holder; m.CheckKill && h != none && (a.todo&late != 0 || a.pc == aIdle && m.newer(s, c)) {
			if hc, _, _ := attOf(int(h)); hc > c && s.at[h].pc < aDone {
				bad = "OLD KILLS NEW: an attempt started under an outdated generation fences the newest one's"
			}
		}
		m.init(&ns, id, uint8(i))
		todo := a.todo
		if !m.ReadBeforeInit {
			todo = m.mine(s, c, t)
		}
		*x = Att{pc: aRead, end: none, todo: todo}
		if m.ReadBeforeInit {
			x.pc, x.end = aWork, 0
		}
		out(ns, bad, f, name(c, t, k))
	}
	switch a.pc {
	case aIdle:
		if s.co[c].staged == 0 || m.mine(s, c, t) == 0 || k > 0 && s.at[i-1].pc == aIdle {
			return
		}
		switch {
		case m.ReadBeforeInit:
			*x = Att{pc: aRead, end: none, todo: m.mine(s, c, t)}
			out(ns, "", "%s starts, reads before init", name(c, t, k))
		case m.PreCheck:
			*x = Att{pc: aPre, end: none}
			if m.CheckKill && m.newer(s, c) {
				x.todo = late
			}
			m.precheck(s, ns, i, c, t, k, out)
		default:
			begin("%s: init")
		}
	case aPre:
		m.precheck(s, ns, i, c, t, k, out)
	case aInit:
		begin("%s: init")
	case aRead:
		p := m.taskReads(s, c, a.rd)
		l := &ns.log[p]
		upto, ok, moved := m.read(l, &x.end)
		if !moved {
			return
		}
		if !ok {
			out(ns, "", "%s: takes the end of %s, must wait", name(c, t, k), pName(p))
			return
		}
		x.end = none
		if _, f := l.last(upto, kGen); !f && m.OwnGenStops && p == pC {
			*x = Att{pc: aDead}
			out(ns, "", "%s: its own generation's record is gone, stops", name(c, t, k))
			return
		}
		if v, f := l.last(upto, kGen); f && v > uint8(c) && p == pC {
			*x = Att{pc: aDead}
			out(ns, "", "%s: sees generation %d, stops", name(c, t, k), v)
			return
		}
		if _, f := l.last(upto, kComplete); f {
			*x = Att{pc: aDead}
			out(ns, "", "%s: sees complete, stops", name(c, t, k))
			return
		}
		if _, f := l.last(upto, kDecision); f && m.DecisionStops && m.prepares(s, c) {
			*x = Att{pc: aDead}
			out(ns, "", "%s: sees a decision, stops", name(c, t, k))
			return
		}
		if p >= pS || m.OneLedger && p == pS {
			d, tomb := l.done(upto)
			if !m.TaskSkipsLedger {
				x.todo &^= d
			}
			if tomb && m.TombStop {
				*x = Att{pc: aDead}
				out(ns, "", "%s: sees tombstones, stops", name(c, t, k))
				return
			}
		}
		x.rd++
		last := int(x.rd) == len(m.TaskReads) || m.prepares(s, c)
		if last {
			*x = Att{pc: aWork, todo: x.todo}
			if m.ReadBeforeInit {
				x.pc = aInit
			}
			if x.todo == 0 {
				*x = Att{pc: aDone}
			}
		}
		out(ns, "", "%s: has read %s (todo=%b)", name(c, t, k), pName(p), x.todo)
	case aWork:
		if s.tx[id].st != 0 {
			return
		}
		if m.prepares(s, c) {
			for j := 0; j < m.S; j++ {
				if a.todo&(1<<j) != 0 {
					ns.produce(m.part(j), kSlice, uint8(j), id)
				}
			}
			x.pc = aReported
			out(ns, "", "%s: all slices produced, prepared, reported", name(c, t, k))
			return
		}
		j := low(a.todo)
		if m.SeparateLedger {
			ns.tx[id].st = stOpen
		} else {
			ns.produce(m.part(j), kSlice, uint8(j)|m.written(s, c, j)<<4, id)
		}
		x.pc = aOpen
		out(ns, "", "%s: slice %d produced, ledger record too", name(c, t, k), j)
	case aOpen:
		j := low(a.todo)
		bad := m.deliver(&ns, c, 1<<j)
		if bad == "" && m.Changes > 0 {
			bad = m.deliverRows(&ns, id, j)
		}
		m.commit(&ns, id, true)
		if m.SeparateLedger {
			x.pc = aLedger
		} else {
			m.advance(x, j)
		}
		out(ns, bad, "%s: commits slice %d", name(c, t, k), j)
	case aLedger:
		if s.tx[id].st == 0 {
			ns.produce(m.part(low(a.todo)), kSlice, uint8(low(a.todo)), id)
			x.pc = aLedgerOpen
			out(ns, "", "%s: ledger record of slice %d in its own transaction", name(c, t, k), low(a.todo))
		}
	case aLedgerOpen:
		m.commit(&ns, id, false)
		j := low(a.todo)
		m.advance(x, j)
		out(ns, "", "%s: commits ledger record of slice %d", name(c, t, k), j)
	}
}

const late = 1 << 7 // CheckKill: the attempt started when a newer generation was readable

func (m Run) newer(s *State, c int) bool {
	v, ok := s.log[pC].last(s.log[pC].stable(), kGen)
	return ok && v > uint8(c)
}

func (m Run) precheck(s *State, ns State, i, c, t, k int, out step) {
	x := &ns.at[i]
	upto, ok, moved := m.read(&ns.log[pC], &x.end)
	if !moved {
		return
	}
	if ok {
		if v, f := ns.log[pC].last(upto, kGen); f && v > uint8(c) {
			*x = Att{pc: aDead}
		} else {
			*x = Att{pc: aInit, todo: x.todo}
		}
	}
	out(ns, "", "%s: reads the generation before init", name(c, t, k))
}

func (m Run) advance(x *Att, j int) {
	x.todo &^= 1 << j
	x.pc, x.rd, x.end = aWork, 0, 0
	if x.todo == 0 {
		*x = Att{pc: aDone}
	}
}

func low(mask uint8) int {
	for j := 0; j < 8; j++ {
		if mask&(1<<j) != 0 {
			return j
		}
	}
	panic("empty")
}

// stuck: coordinators before the last, and their attempts, are dead from here on, no timeout comes; can the last one still move?
func (m Run) stuck(s *State) string {
	if m.StuckDecided && s.decide == 0 {
		return ""
	}
	c := m.K - 1
	if pc := s.co[c].pc; pc == cNew || pc == cDone || pc == cNoop || pc == cDead || s.co[c].fenced != 0 {
		return ""
	}
	moved := false
	out := func(ns State, bad string, f string, a ...any) { moved = true }
	m.coordinator(s, c, out)
	exhausted := false
	for t := 0; t < m.T[c]; t++ {
		for k := 0; k < m.A; k++ {
			m.attempt(s, att(c, t, k), c, t, k, out)
		}
		if s.at[att(c, t, m.A-1)].pc != aIdle {
			exhausted = true // no attempt left for this task: Spark fails the stage, not a wait
		}
	}
	n := m
	n.Timeouts, n.Compaction = false, false
	n.kafka(s, out)
	if moved || (exhausted && s.co[c].pc == cStage) || (m.Atomic && s.co[c].pc == cStage && s.co[c].useA == 2) {
		return ""
	}
	return "STUCK until a transaction timeout: coordinator " + fmt.Sprint(c) + " waits in " + cName[s.co[c].pc]
}

// canon sorts attempts that are alike, and forgets what no longer matters.
func (m Run) canon(s *State) {
	if m.Atomic {
		return
	}
	for c := 0; c < m.K; c++ {
		for t := 0; t < m.T[c]; t++ {
			for k := m.A - 1; k > 0; k-- {
				i, j := att(c, t, k-1), att(c, t, k)
				if less(s.at[i], s.at[j]) {
					s.at[i], s.at[j] = s.at[j], s.at[i]
					h := &s.tx[1+t].holder
					if *h == uint8(i) {
						*h = uint8(j)
					} else if *h == uint8(j) {
						*h = uint8(i)
					}
				}
			}
			for k := 0; k < m.A; k++ { // a finished attempt as holder is as good as none
				if i := att(c, t, k); s.at[i].pc == aDone {
					if s.tx[1+t].holder == uint8(i) {
						s.tx[1+t].holder = none
					}
					s.at[i] = Att{pc: aDead}
				}
			}
		}
	}
}

func less(a, b Att) bool {
	if a.pc != b.pc {
		return a.pc < b.pc
	}
	if a.todo != b.todo {
		return a.todo < b.todo
	}
	if a.rd != b.rd {
		return a.rd < b.rd
	}
	return a.end < b.end
}

// --- words -----------------------------------------------------------------------------------------------------------------------------

func name(c, t, k int) string { return fmt.Sprintf("coordinator %d's task %d attempt %c", c, t, 'a'+k) }

func idName(id uint8) string {
	if id == 0 {
		return "the coordinator id"
	}
	return fmt.Sprintf("task id %d", id-1)
}

func pName(p uint8) string {
	return [...]string{"config topic", "complete's partition", "slice partition 0", "slice partition 1"}[p]
}

func (m Run) Show(s *State) string {
	var b strings.Builder
	for p := range s.log {
		fmt.Fprintf(&b, "[%s:", pName(uint8(p)))
		for i := uint8(0); i < s.log[p].n; i++ {
			e := s.log[p].e[i]
			fmt.Fprintf(&b, " %s%d%s", [...]string{"", "gen", "count", "slice", "complete", "tomb", "tomb", "decision", "plan", "tombplan"}[e.kind], e.val, [...]string{"", "(open)", "(deciding)", ""}[e.st])
		}
		b.WriteString("] ")
	}
	for c := 0; c < m.K; c++ {
		fmt.Fprintf(&b, "coordinator %d: %s; ", c, cName[s.co[c].pc])
	}
	for i := range s.at {
		if c, t, k := attOf(i); s.at[i].pc != aIdle {
			fmt.Fprintf(&b, "%s: %s; ", name(c, t, k), aName[s.at[i].pc])
		}
	}
	fmt.Fprintf(&b, "commits per slice %v", s.count[:m.S])
	if m.Changes > 0 {
		fmt.Fprintf(&b, "; input now %s; commits per row %v", showRows(s.input.rows), s.input.committed)
	}
	return b.String()
}
