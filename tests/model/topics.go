package main

// The topics of a run: drivers that are given different control topics or groups, and a control topic that is deleted and created again.
// Some drivers, one row. They are drivers of one run, or (Narrow) of two intervals that overlap. Each has one task with an id of its own,
// as the tasks of two generations with different numbers of tasks have. The ledger keeps *claims*: records that name a control topic, its
// topic id and a group. The first claim in the log's order counts, until one replaces it: the first that names it as the topic that is gone.
// A claim is never overwritten or removed, since its key has all of this.

import (
	"fmt"
	"strings"
)

const (
	maxClaims = 5
	maxD      = 3
)

type TopCfg struct {
	Name     string
	D        int
	Control  [maxD]uint8 // name of each driver's control topic
	Group    [maxD]uint8
	Narrow   bool  // the drivers' intervals differ and overlap
	Recreate uint8 // how often control topic 0 may be deleted and created again
	Lose     bool  // the ledger's records may be deleted, under the same topic id
	// mutations
	NoClaim       bool // the ledger keeps no claims
	ClaimUnread   bool // a claim is not looked at again once it is written
	StableRead    bool // the read after the claim stops at the stable end
	TaskWithoutID bool // a task compares the generation's offset only
	NotFenced     bool // a new control topic is claimed without fencing all ids
	FencedLate    bool // a new control topic is claimed first, and all ids are fenced after the run's own fencing
	LossUnseen    bool // a read does not look where the ledger begins
	SlicesUnasked bool // admission does not ask the ledger for slices of runs without a plan
}

const (
	dNew = iota
	dClaim
	dClaimOpen
	dPlan
	dGen
	dFence
	dCheck
	dCount
	dStage
	dEnd
	dDone
	dRefused
	dFenceLate
)

var dName = []string{"new", "claim due", "claim open", "admission", "generation due", "fence", "reads again", "task count due", "stage", "complete due", "done", "refused", "fences late"}

const (
	tNew = iota
	tInit
	tSlices
	tAgain
	tBegin
	tOpen
	tDone
	tDead
)

var tName = []string{"new", "init due", "reads slices", "reads control again", "work", "open", "done", "dead"}

type Claim struct{ name, inc, group, gone, by, st uint8 } // gone: incarnation + 1 of the topic that it replaces

type Control struct{ inc, n, newest, count, plans uint8 } // n: records so far; newest: offset + 1 of the newest generation; count: bit d: task count of d

type TopDriver struct{ pc, inc, gen uint8 }

type TopState struct {
	ctl      [2]Control
	claims   [maxClaims]Claim
	n        uint8 // claims
	d        [maxD]TopDriver
	t        [maxD]uint8
	slice    [2]uint8 // by run: its slice is committed
	complete [2]uint8
	written  uint8
	again    uint8
	lost     uint8
}

type Top struct{ TopCfg }

func (m Top) Init() TopState { return TopState{} }

func (m Top) run(d int) int {
	if m.Narrow {
		return d % 2
	}
	return 0
}

// holder is the claim that counts, as far as a read gets; ok says whether the read reaches its end.
func (m Top) holder(s *TopState, stable bool) (h Claim, ok bool) {
	for i := uint8(0); i < s.n; i++ {
		c := s.claims[i]
		if c.st == stOpen {
			return h, stable
		}
		if h.st == 0 || c.gone == h.inc+1 && c.name == h.name && c.group == h.group {
			h = c
		}
	}
	return h, true
}

func (m Top) mine(d int, s *TopState, c Claim) bool {
	return c.name == m.Control[d] && c.group == m.Group[d] && c.inc == s.d[d].inc
}

func (m Top) stale(d int, s *TopState, c Claim) bool {
	return c.name == m.Control[d] && c.group == m.Group[d] && c.inc < s.d[d].inc
}

// fence takes an id away from whoever has it.
func (s *TopState) fence(t int) {
	if s.t[t] >= tSlices && s.t[t] <= tOpen {
		s.t[t] = tDead
	}
}

func (m Top) fenceAll(s *TopState, d int) {
	for t := 0; t < m.D; t++ {
		if m.Group[t] == m.Group[d] {
			s.fence(t)
		}
	}
}

func (m Top) Next(s *TopState, emit func(*TopState, func() string, string)) {
	out := func(ns TopState, bad, f string, a ...any) {
		emit(&ns, func() string { return fmt.Sprintf(f, a...) }, bad)
	}
	if s.again < m.Recreate {
		ns := *s
		ns.again++
		ns.ctl[0] = Control{inc: s.ctl[0].inc + 1}
		out(ns, "", "the control topic is deleted and created again")
	}
	if m.Lose && s.lost == 0 {
		ns := *s
		ns.lost, ns.slice, ns.complete = 1, [2]uint8{}, [2]uint8{}
		ns.claims, ns.n = [maxClaims]Claim{}, 0
		out(ns, "", "the ledger's records are deleted")
	}
	for d := 0; d < m.D; d++ {
		m.driver(s, d, out)
		m.task(s, d, out)
	}
}

func (m Top) driver(s *TopState, d int, out func(TopState, string, string, ...any)) {
	ns := *s
	x, c, run := &ns.d[d], &ns.ctl[m.Control[d]], m.run(d)
	say := func(bad, what string) { out(ns, bad, "driver %d: %s", d, what) }
	refuse := func(why string) {
		*x = TopDriver{pc: dRefused}
		say("", why)
	}
	if pc := s.d[d].pc; s.lost != 0 && !m.LossUnseen && (pc == dClaim || pc == dPlan || pc == dCheck || pc == dStage) {
		refuse("is refused: the ledger does not begin at 0")
		return
	}
	switch s.d[d].pc {
	case dNew:
		x.inc, x.pc = c.inc, dClaim
		if m.NoClaim {
			x.pc = dPlan
		}
		say("", "looks its topics up")
	case dClaim:
		first, _ := m.holder(s, true)
		switch {
		case m.mine(d, s, first) && first.st != 0:
			x.pc = dPlan
			say("", "finds its control topic claimed")
		case first.st != 0 && !m.stale(d, s, first):
			refuse("is refused: another control topic or group is claimed")
		case s.n < maxClaims:
			gone := uint8(0)
			if first.st != 0 {
				gone = first.inc + 1
				if !m.NotFenced && !m.FencedLate {
					m.fenceAll(&ns, d)
				}
			}
			ns.claims[s.n] = Claim{m.Control[d], x.inc, m.Group[d], gone, uint8(d), stOpen}
			ns.n++
			x.pc = dClaimOpen
			say("", "fences all ids where the claimed topic is gone, and writes its claim")
		}
	case dClaimOpen:
		for i := range ns.claims {
			if one := &ns.claims[i]; one.by == uint8(d) && one.st == stOpen {
				one.st = stCommitted
			}
		}
		x.pc = dPlan
		say("", "commits its claim")
	case dPlan:
		first, ok := m.holder(s, m.StableRead)
		if !ok {
			return
		}
		other := 1 - run
		switch {
		case !m.NoClaim && !m.ClaimUnread && !m.mine(d, s, first):
			refuse("is refused: another claim counts")
		case c.inc != x.inc:
			refuse("is refused: the control topic was created again")
		case s.complete[run] != 0:
			*x = TopDriver{pc: dDone}
			say("", "finds its run complete")
		case c.plans&(1<<run) != 0:
			x.pc = dGen
			say("", "adopts the plan on record")
		case m.Narrow && (s.complete[other] != 0 || c.plans&(1<<other) != 0):
			refuse("is refused: its interval overlaps")
		case !m.SlicesUnasked && (s.slice[run] != 0 || m.Narrow && s.slice[other] != 0):
			refuse("is refused: the ledger has slices of a run without a plan")
		default:
			c.plans |= 1 << run
			c.n++
			x.pc = dGen
			say("", "writes its plan")
		}
	case dGen: // by the topic's name, so perhaps into a new topic
		c.n++
		c.newest, x.gen = c.n, c.n
		x.pc = dFence
		say("", "writes its generation")
	case dFence:
		for t := 0; t < m.D; t++ {
			if m.run(t) == run && m.Group[t] == m.Group[d] && m.Control[t] == m.Control[d] && (c.count&(1<<t) != 0 || s.t[t] == tOpen) {
				ns.fence(t)
			}
		}
		x.pc = dCheck
		if m.FencedLate {
			x.pc = dFenceLate
		}
		say("", "fences")
	case dFenceLate:
		m.fenceAll(&ns, d)
		x.pc = dCheck
		say("", "fences all ids")
	case dCheck:
		first, ok := m.holder(s, m.StableRead)
		if !ok {
			return
		}
		switch {
		case !m.NoClaim && !m.ClaimUnread && !m.mine(d, s, first):
			refuse("is refused: another claim counts")
		case c.inc != x.inc && !m.TaskWithoutID:
			refuse("is refused: the control topic was created again")
		case c.newest != x.gen:
			refuse("is superseded")
		default:
			x.pc = dCount
			say("", "reads both topics again")
		}
	case dCount:
		c.count |= 1 << d
		c.n++
		x.pc = dStage
		say("", "writes its task count")
	case dStage:
		if s.slice[run] != 0 || s.complete[run] != 0 {
			s2 := s.t[d]
			if s2 >= tSlices && s2 <= tOpen {
				ns.fence(d)
			}
			x.pc = dEnd
			say("", "fences its own ids, and reads the ledger")
		}
	case dEnd:
		if c.inc != x.inc {
			refuse("is refused before complete: the control topic was created again")
			return
		}
		ns.complete[run], ns.slice[run] = 1, 0
		c.plans &^= 1 << run
		c.newest = 0
		x.pc = dDone
		say("", "writes complete")
	}
}

func (m Top) current(s *TopState, d int) bool {
	c := s.ctl[m.Control[d]]
	return c.newest == s.d[d].gen && c.newest != 0 && (m.TaskWithoutID || c.inc == s.d[d].inc)
}

// task of driver d. It starts at any time after the task count record, and has the driver's topic ids and generation.
func (m Top) task(s *TopState, d int, out func(TopState, string, string, ...any)) {
	ns := *s
	t := &ns.t[d]
	say := func(bad, what string) { out(ns, bad, "task of driver %d: %s", d, what) }
	switch s.t[d] {
	case tNew:
		if s.d[d].pc >= dStage && s.d[d].pc <= dDone && s.d[d].gen != 0 {
			*t = tDead
			if m.current(s, d) {
				*t = tInit
			}
			say("", "reads the control topic")
		}
	case tInit:
		*t = tSlices
		say("", "init")
	case tSlices:
		*t = tAgain
		if s.slice[m.run(d)] != 0 || s.lost != 0 && !m.LossUnseen {
			*t = tDead
		}
		say("", "reads its slice")
	case tAgain:
		*t = tDead
		if m.current(s, d) && s.complete[m.run(d)] == 0 && (s.lost == 0 || m.LossUnseen) {
			*t = tBegin
		}
		say("", "reads the control topic and complete")
	case tBegin:
		*t = tOpen
		say("", "begins its transaction")
	case tOpen:
		*t = tDone
		ns.slice[m.run(d)] = 1
		ns.written++
		bad := ""
		if ns.written > 1 {
			bad = "DUPLICATE: the row is written twice"
		}
		say(bad, "commits")
	}
}

func (m Top) Show(s *TopState) string {
	var b strings.Builder
	for d := 0; d < m.D; d++ {
		fmt.Fprintf(&b, "driver %d: %s, its task: %s; ", d, dName[s.d[d].pc], tName[s.t[d]])
	}
	fmt.Fprintf(&b, "claims %v, control topics %v", s.claims[:s.n], s.ctl)
	return b.String()
}
