package main

import "time"

// Orders in which a task reads after init.
var (
	// the first draft: "the newest generation and `complete`, and its slices' ledger records"
	literal = []uint8{pC, pK, pS}
	// as amended: what a finishing run removes first is read first, what it leaves is read last
	slicesFirst  = []uint8{pS, pC, pK}
	slicesFirst2 = []uint8{pS, pS1, pC, pK}
)

func base(name string) Cfg {
	return Cfg{Name: name, K: 2, T: [maxC]int{2, 1, 2}, S: 2, A: 2, SliceParts: 1,
		TaskReads: slicesFirst, D2: []uint8{pC, pS, pK}, D5: []uint8{pS}, D2Ledger: "end"}
}

// amended: D2 reads the ledger only as far as it is stable, D5 reads everything, own ids fenced once more before the last read.
func amended(c *Cfg) {
	c.D2, c.D2Ledger, c.D5, c.FinalFence = []uint8{pC, pK}, "stable", []uint8{pS, pK}, true
}

func atomic(c *Cfg) {
	c.Atomic = true
	c.D2, c.D2Ledger, c.D5 = []uint8{pC, pK}, "stable", []uint8{pS, pK}
}

func with(c Cfg, fs ...func(*Cfg)) Cfg {
	for _, f := range fs {
		f(&c)
	}
	return c
}

func tasks(t ...int) func(*Cfg) {
	return func(c *Cfg) {
		c.K = len(t)
		copy(c.T[:], t)
	}
}

func scenarios() []scenario {
	var l []scenario
	add := func(expect string, name string, fs ...func(*Cfg)) {
		l = append(l, runs(expect, with(base(name), fs...)))
	}
	adm := func(expect string, c AdmCfg) {
		l = append(l, scenario{c.Name, expect, func(max int, d time.Duration) Result { return Search[AdmState](Adm{c}, max, d) }})
	}
	env := func(c *Cfg) { c.Timeouts, c.Compaction = true, true }
	lag := func(c *Cfg) { c.Lag = true }
	fresh := func(c *Cfg) { c.Fresh = true }
	small := func(c *Cfg) { c.S = 1 }

	// 1. the design as written ---------------------------------------------------------------------------------------------------
	lit := func(c *Cfg) { c.TaskReads = literal }
	add("DUPLICATE", "literal/task-reads", lit, tasks(1), small)
	add("DUPLICATE", "literal/tombstone-stops+compaction", lit, tasks(1), small, env, func(c *Cfg) { c.TombStop = true })
	add("", "literal/tombstone-stops", lit, tasks(1), small, func(c *Cfg) { c.TombStop, c.Timeouts = true, true })
	add("DUPLICATE", "literal/one-fetch-complete-captured-first", tasks(1), small, func(c *Cfg) { c.TaskReads = []uint8{pK, pS, pC} })
	one := func(c *Cfg) { c.OneLedger, c.TaskReads, c.D2 = true, []uint8{pC, pS}, []uint8{pC, pS} }
	add("", "literal/one-ledger-partition", tasks(2, 1), one, func(c *Cfg) { c.Timeouts = true })
	add("DUPLICATE", "literal/one-ledger-partition+compaction", tasks(2, 1), one, env)
	add("", "literal/one-ledger-partition+compaction-lag", tasks(2, 1), one, env, lag)
	add("ANY", "compaction/three-drivers", tasks(2, 1, 1), env, amended, func(c *Cfg) { c.A = 1 })
	add("DUPLICATE", "compaction/three-drivers-once", tasks(2, 1, 1), env, amended, func(c *Cfg) { c.A, c.OnlyOnce = 1, true })
	add("STUCK", "literal/D2-blocks", tasks(2, 1), func(c *Cfg) { c.CheckStuck = true })
	add("BARRIER", "literal/barrier", tasks(1), small, func(c *Cfg) { c.CheckBarrier, c.DataMarkers = true, true })

	// 2. design A with the task's reads in the right order ---------------------------------------------------------------------------
	add("", "a/1-driver", tasks(2), env, func(c *Cfg) { c.S = 3 })
	add("", "a/2-1", tasks(2, 1), env)
	add("", "a/1-2", tasks(1, 2), env)
	add("", "a/2-2", tasks(2, 2), env)
	add("", "a/2-1-two-slice-partitions", tasks(2, 1), env, func(c *Cfg) {
		c.SliceParts, c.TaskReads, c.D2, c.D5 = 2, slicesFirst2, []uint8{pC, pS, pS1, pK}, []uint8{pS, pS1}
	})
	add("", "a/2-1-data-markers", tasks(2, 1), func(c *Cfg) { c.DataMarkers, c.Timeouts = true, true })
	add("", "a/2-1-three-slices", tasks(2, 1), env, func(c *Cfg) { c.S = 3 })
	add("", "a/2-1-generation-record-removed", tasks(2, 1), env, func(c *Cfg) { c.TombGen = true })
	add("", "a/2-1-2-one-attempt", tasks(2, 1, 2), env, lag, func(c *Cfg) { c.A = 1 })
	add("", "a/1-2-1-one-attempt", tasks(1, 2, 1), env, lag, func(c *Cfg) { c.A = 1 })
	add("", "a/2-1-1", tasks(2, 1, 1), lag, func(c *Cfg) { c.Compaction = true })
	add("", "a/2-1-2", tasks(2, 1, 2), func(c *Cfg) {})

	// 3. design A amended ------------------------------------------------------------------------------------------------------------
	add("", "amended/1-driver", tasks(2), env, amended, func(c *Cfg) { c.S = 3 })
	add("", "amended/2-1", tasks(2, 1), env, amended)
	add("", "amended/1-2", tasks(1, 2), env, amended)
	add("", "amended/2-2", tasks(2, 2), env, amended)
	add("", "amended/2-1-generation-record-removed", tasks(2, 1), env, amended, func(c *Cfg) { c.TombGen = true })
	add("", "amended/2-1-one-ledger-partition", tasks(2, 1), env, amended, func(c *Cfg) {
		c.OneLedger = true
		c.TaskReads = []uint8{pS, pC, pS}
		c.D2, c.D5 = []uint8{pC, pS}, []uint8{pS}
	})
	add("", "amended/2-1-pre-check", tasks(2, 1), amended, func(c *Cfg) { c.PreCheck, c.Compaction = true, true })
	add("OLD KILLS NEW", "literal/old-attempts-kill-new", tasks(2, 1), func(c *Cfg) { c.CheckKill = true })
	add("", "amended/old-attempts-do-not-kill-new", tasks(2, 1), amended, func(c *Cfg) { c.PreCheck, c.CheckKill = true, true })
	add("", "amended/not-stuck", tasks(2, 1), amended, func(c *Cfg) { c.CheckStuck = true })
	add("", "amended/not-stuck-2-2", tasks(2, 2), amended, func(c *Cfg) { c.CheckStuck = true })
	add("", "amended/barrier", tasks(2, 1), amended, func(c *Cfg) { c.CheckBarrier, c.DataMarkers, c.Timeouts = true, true, true })
	oneA := func(c *Cfg) {
		c.OneLedger, c.TaskReads, c.D2, c.D5 = true, []uint8{pS, pC, pS}, []uint8{pC, pS}, []uint8{pS}
	}
	strict := func(c *Cfg) { c.NoTasksIsDone = true }
	add("", "amended/finished-is-no-op", tasks(2, 1), env, amended, strict)
	add("", "amended/finished-is-no-op-one-ledger-partition", tasks(2, 1), env, amended, oneA, strict)
	add("", "amended/finished-is-no-op-three-drivers", tasks(2, 1, 2), env, amended, lag, oneA, strict, func(c *Cfg) { c.A = 1 })
	add("", "amended/finished-is-no-op-b", tasks(2, 1), atomic, env, strict, func(c *Cfg) { c.FinalFence, c.DecisionStops = true, true })
	add("NOT A NO-OP", "b/finished-hidden-behind-open-ledger", tasks(2, 1), atomic, oneA, func(c *Cfg) { c.StrictNoop = true })
	add("", "b/finished-told-by-config-topic", tasks(2, 1), atomic, oneA, strict)
	for _, w := range []struct {
		tag string
		f   func(*Cfg)
	}{{"lag", lag}, {"fresh", fresh}} {
		add("", "amended/2-1-2-one-attempt-"+w.tag, tasks(2, 1, 2), env, amended, w.f, func(c *Cfg) { c.A = 1 })
		add("", "amended/1-2-1-one-attempt-"+w.tag, tasks(1, 2, 1), env, amended, w.f, func(c *Cfg) { c.A = 1 })
		add("", "amended/2-1-1-"+w.tag, tasks(2, 1, 1), env, amended, w.f)
		add("", "amended/2-1-2-"+w.tag, tasks(2, 1, 2), env, amended, w.f)
		add("", "amended/1-2-1-"+w.tag, tasks(1, 2, 1), env, amended, w.f)
	}
	add("", "amended/2-1-2-generation-record-removed", tasks(2, 1, 2), env, amended, lag, func(c *Cfg) { c.A, c.TombGen = 1, true })
	add("", "amended/2-1-two-slice-partitions", tasks(2, 1), env, amended, func(c *Cfg) {
		c.SliceParts, c.TaskReads, c.D5 = 2, slicesFirst2, []uint8{pS, pS1, pK}
	})
	add("", "amended/2-1-three-slices-markers", tasks(2, 1), env, amended, func(c *Cfg) { c.S, c.DataMarkers = 3, true })

	add("", "big/2-2-2", tasks(2, 2, 2), env, amended, lag)
	add("", "big/2-1-2-three-slices", tasks(2, 1, 2), env, amended, lag, func(c *Cfg) { c.S = 3 })

	// 3b. a plan abandoned while its tasks may still live
	gone := func(c *Cfg) { c.TombGen = true }
	add("ABANDONED", "abandon/without-fencing", tasks(2, 1), amended, func(c *Cfg) { c.Abandon = "bare" })
	add("ABANDONED", "abandon/fenced-generation-removed", tasks(2, 1), amended, env, lag, gone, func(c *Cfg) { c.Abandon = "fenced" })
	add("", "abandon/fenced-generation-kept", tasks(2, 1), amended, env, lag, func(c *Cfg) { c.Abandon = "fenced" })
	add("", "abandon/fenced-own-generation-looked-for", tasks(2, 1), amended, env, lag, gone, func(c *Cfg) { c.Abandon, c.OwnGenStops = "fenced", true })
	add("", "amended/own-generation-looked-for", tasks(2, 1), amended, env, lag, gone, func(c *Cfg) { c.OwnGenStops = true })

	// 4. mutations: the checker must fail ----------------------------------------------------------------------------------------------
	for _, g := range []struct {
		tag string
		f   func(*Cfg)
	}{{"", func(*Cfg) {}}, {"-amended", amended}} {
		add("", "mutant/none"+g.tag, tasks(2, 1), g.f)
		add("OLD GENERATION", "mutant/fence-before-generation"+g.tag, tasks(2, 1), g.f, func(c *Cfg) { c.FenceBeforeGen = true })
		add("OLD GENERATION", "mutant/fence-new-count"+g.tag, tasks(2, 1), g.f, func(c *Cfg) { c.FenceNewCount = true })
		add("ANY", "mutant/committed-end"+g.tag, tasks(2, 1), g.f, func(c *Cfg) { c.CommittedEnd = true })
		add("ANY", "mutant/read-before-init"+g.tag, tasks(2, 1), g.f, func(c *Cfg) { c.ReadBeforeInit = true })
		add("DUPLICATE", "mutant/separate-ledger"+g.tag, tasks(2, 1), g.f, func(c *Cfg) { c.SeparateLedger = true })
		add("DUPLICATE", "mutant/no-re-read-by-task"+g.tag, tasks(2, 1), g.f, func(c *Cfg) { c.TaskSkipsLedger = true })
		add("DUPLICATE", "mutant/slice-moves-in-generation"+g.tag, tasks(2, 1), g.f, func(c *Cfg) { c.SliceMoves = true })
	}
	once := func(c *Cfg) { c.OnlyOnce = true }
	add("DUPLICATE", "mutant/fence-before-generation-once", tasks(2, 1), once, func(c *Cfg) { c.FenceBeforeGen = true })
	add("DUPLICATE", "mutant/fence-new-count-once", tasks(2, 1), once, func(c *Cfg) { c.FenceNewCount = true })
	add("DUPLICATE", "mutant/committed-end-once", tasks(2, 1), once, func(c *Cfg) { c.CommittedEnd = true })
	add("DUPLICATE", "mutant/read-before-init-once", tasks(2, 1), once, amended, func(c *Cfg) { c.ReadBeforeInit = true })
	add("DUPLICATE", "mutant/no-re-read-at-all", tasks(2, 1), func(c *Cfg) { c.SkipD5, c.TaskSkipsLedger, c.A = true, true, 1 })
	add("", "mutant/no-re-read-by-coordinator", tasks(2, 1), env, func(c *Cfg) { c.SkipD5 = true })

	// 4b. an input that changes between attempts --------------------------------------------------------------------------------------
	moves := func(check Check, changes uint8) func(*Cfg) {
		return func(c *Cfg) { c.Check, c.Changes = check, changes }
	}
	add("", "input/frozen", tasks(2, 1), amended, moves(checkFrozen, 2))
	add("", "input/frozen-env", tasks(1, 2), env, amended, lag, moves(checkFrozen, 1))
	add("", "input/frozen-three-drivers", tasks(2, 1, 2), amended, moves(checkFrozen, 2), func(c *Cfg) { c.A = 1 })
	add("", "input/one-driver", tasks(2), env, amended, moves(checkNone, 2))
	add("", "input/recomputed-end-check", tasks(2, 1), amended, moves(checkFrozen, 2), func(c *Cfg) { c.Recomputes, c.EndCheck = true, true })
	add("ROW DOUBLED", "mutant/input-not-checked", tasks(2, 1), amended, moves(checkNone, 1))
	add("ROW LOST", "mutant/input-not-checked-lost", tasks(2, 1), amended, moves(checkNone, 1), func(c *Cfg) { c.OnlyLost = true })
	add("ROW", "mutant/input-checked-apart", tasks(2, 1), amended, moves(checkApart, 1))
	add("ROW", "mutant/input-checked-before-fencing", tasks(2, 1), amended, moves(checkEarly, 1))
	add("ROW", "mutant/input-recomputed", tasks(2), amended, moves(checkFrozen, 1), func(c *Cfg) { c.Recomputes = true })

	// 5. atomic visibility (B) -----------------------------------------------------------------------------------------------------------
	add("STUCK", "b/literal-D2-blocks", tasks(2, 1), atomic, func(c *Cfg) { c.D2, c.D2Ledger, c.CheckStuck = []uint8{pC, pS, pK}, "end", true })
	add("STUCK", "b/literal-D2-blocks-before-a-decision", tasks(1, 1), small, atomic, func(c *Cfg) {
		c.D2, c.D2Ledger, c.CheckStuck, c.StuckDecided = []uint8{pC, pS, pK}, "end", true, true
	})
	add("STUCK", "b/late-duplicate-holds-the-ledger", tasks(2, 1), atomic, func(c *Cfg) { c.CheckStuck, c.FinalFence = true, true })
	stops := func(c *Cfg) { c.FinalFence, c.DecisionStops = true, true }
	add("", "b/not-stuck", tasks(2, 1), atomic, stops, func(c *Cfg) { c.CheckStuck = true })
	add("", "b/not-stuck-2-2", tasks(2, 2), atomic, stops, func(c *Cfg) { c.CheckStuck = true })
	add("", "b/amended-2-1", tasks(2, 1), atomic, stops, env)
	add("", "b/amended-1-2", tasks(1, 2), atomic, stops, env)
	add("", "b/amended-2-2", tasks(2, 2), atomic, stops, env)
	add("", "b/amended-2-1-2-one-attempt", tasks(2, 1, 2), atomic, stops, env, lag, func(c *Cfg) { c.A = 1 })
	add("", "b/amended-2-1-1", tasks(2, 1, 1), atomic, stops, env, lag)
	add("", "b/2-1", tasks(2, 1), atomic, env)
	add("", "b/2-2", tasks(2, 2), atomic, env)
	add("", "b/2-1-final-fence", tasks(2, 1), atomic, env, func(c *Cfg) { c.FinalFence = true })
	add("", "b/2-1-2-one-attempt", tasks(2, 1, 2), atomic, env, func(c *Cfg) { c.A = 1 })
	add("PARTIAL", "b/whole-late-older-attempt", tasks(2, 1), atomic, func(c *Cfg) { c.A, c.CheckWhole, c.CheckAtomic = 1, true, true })
	add("PARTIAL", "b/whole-late-older-attempt-pre-check", tasks(2, 1), atomic, func(c *Cfg) { c.A, c.CheckWhole, c.PreCheck = 1, true, true })
	add("", "b/no-data-before-decision", tasks(2, 1), atomic, env, func(c *Cfg) { c.CheckAtomic = true })
	add("PARTIAL", "b/whole-two-attempts", tasks(2, 1), atomic, func(c *Cfg) { c.CheckWhole = true })
	add("PARTIAL", "b/whole-decision-after-fence", tasks(2, 1), atomic, func(c *Cfg) { c.A, c.CheckWhole, c.FenceBeforeDecision = 1, true, true })
	add("PARTIAL", "b/whole-decision-ignored", tasks(2, 1), atomic, func(c *Cfg) { c.A, c.CheckWhole, c.IgnoreDecision = 1, true, true })
	add("", "b/decision-after-fence-still-once", tasks(2, 1), atomic, env, func(c *Cfg) { c.FenceBeforeDecision = true })
	add("", "mutant/b-no-re-read-by-coordinator", tasks(2, 1), atomic, env, func(c *Cfg) { c.SkipD5 = true })
	add("DUPLICATE", "mutant/b-prepares-again-without-re-read", tasks(2, 1), atomic, func(c *Cfg) { c.SkipD5, c.NoFallback, c.A = true, true, 1 })
	add("", "b/prepares-again-with-re-read", tasks(2, 1), atomic, env, func(c *Cfg) { c.NoFallback = true })
	add("DUPLICATE", "mutant/b-committed-end", tasks(2, 1), atomic, func(c *Cfg) { c.CommittedEnd = true })

	// 6. admission -----------------------------------------------------------------------------------------------------------------------
	ck, kc := []uint8{pC, pK}, []uint8{pK, pC}
	two := [nRuns]int{2, 2}
	adm("", AdmCfg{Name: "admission/plan-kept", Drivers: two, Reads: ck, Retries: 2})
	adm("", AdmCfg{Name: "admission/plan-kept-other-order", Drivers: two, Reads: kc, Retries: 2})
	adm("", AdmCfg{Name: "admission/plan-removed-config-first", Drivers: two, Reads: ck, Retries: 2, PlanRemoved: true, Compaction: true})
	adm("OVERLAP", AdmCfg{Name: "admission/plan-removed-ledger-first", Drivers: [nRuns]int{1, 1}, Reads: kc, Retries: 2, PlanRemoved: true})
	adm("PLAN REPLACED", AdmCfg{Name: "admission/own-plan-not-adopted", Drivers: [nRuns]int{2, 0}, Reads: ck, Retries: 2, Overwrite: true})
	adm("", AdmCfg{Name: "admission/read-again-without-init", Drivers: two, Reads: ck, Retries: 2, NoInitAgain: true})
	adm("OVERLAP", AdmCfg{Name: "mutant/no-planner-id", Drivers: [nRuns]int{1, 1}, Reads: ck, NoPlannerID: true})
	adm("ANY", AdmCfg{Name: "mutant/admission-committed-end", Drivers: two, Reads: ck, Retries: 2, CommittedEnd: true, Noise: true})
	adm("", AdmCfg{Name: "admission/with-unrelated-run", Drivers: two, Reads: ck, Retries: 2, PlanRemoved: true, Compaction: true, Noise: true})
	adm("", AdmCfg{Name: "admission/contained", Drivers: two, Reads: ck, Retries: 2, Contained: true})
	adm("", AdmCfg{Name: "admission/contained-plan-removed", Drivers: two, Reads: ck, Retries: 2, Contained: true, PlanRemoved: true, Compaction: true, Noise: true})
	adm("OVERLAP", AdmCfg{Name: "admission/contained-ledger-first", Drivers: [nRuns]int{1, 1}, Reads: kc, Retries: 2, Contained: true, PlanRemoved: true})
	adm("NOTHING COMPLETE", AdmCfg{Name: "mutant/contained-in-a-plan", Drivers: [nRuns]int{1, 1}, Reads: ck, Retries: 2, Contained: true, PlanIsEnough: true})

	// 7. the topics of a run ---------------------------------------------------------------------------------------------------------------
	top := func(expect string, c TopCfg) {
		l = append(l, scenario{c.Name, expect, func(max int, d time.Duration) Result { return Search[TopState](Top{c}, max, d) }})
	}
	other := [maxD]uint8{0, 1}
	both := func(expect, name string, f func(*TopCfg)) {
		for _, narrow := range []bool{false, true} {
			c := TopCfg{Name: name, D: 2, Narrow: narrow}
			if narrow {
				c.Name += "-overlap"
			}
			f(&c)
			top(expect, c)
		}
	}
	three := func(c *TopCfg) { c.D = 3 }
	both("", "topics/same", three)
	both("", "topics/two-control-topics", func(c *TopCfg) { c.D, c.Control = 3, other })
	both("", "topics/two-groups", func(c *TopCfg) { c.D, c.Group = 3, other })
	both("", "topics/two-groups-two-control-topics", func(c *TopCfg) { c.D, c.Control, c.Group = 3, other, other })
	both("", "topics/recreated", func(c *TopCfg) { c.D, c.Recreate = 3, 2 })
	both("", "topics/recreated-two-control-topics", func(c *TopCfg) { c.D, c.Control, c.Recreate = 3, other, 1 })
	both("", "topics/recreated-two-groups", func(c *TopCfg) { c.D, c.Group, c.Recreate = 3, other, 1 })
	both("DUPLICATE", "mutant/topics-no-claim", func(c *TopCfg) { c.Control, c.NoClaim = other, true })
	both("DUPLICATE", "mutant/topics-claim-not-read-again", func(c *TopCfg) { c.Control, c.Group, c.ClaimUnread = other, other, true })
	both("DUPLICATE", "mutant/topics-claim-read-to-the-stable-end", func(c *TopCfg) { c.Control, c.Group, c.StableRead = other, other, true })
	both("DUPLICATE", "mutant/topics-tasks-without-ids", func(c *TopCfg) { c.Recreate, c.TaskWithoutID = 1, true })
	both("DUPLICATE", "mutant/topics-recreated-not-fenced", func(c *TopCfg) { c.Recreate, c.NotFenced = 1, true })
	both("", "topics/ledger-records-deleted", func(c *TopCfg) { c.D, c.Lose, c.Recreate = 3, true, 1 })
	both("DUPLICATE", "mutant/topics-ledger-records-deleted-unseen", func(c *TopCfg) { c.Lose, c.LossUnseen = true, true })
	top("DUPLICATE", TopCfg{Name: "mutant/topics-slices-not-asked-for", D: 2, Narrow: true, Recreate: 1, SlicesUnasked: true})
	top("DUPLICATE", TopCfg{Name: "mutant/topics-recreated-fenced-late", D: 2, Narrow: true, Recreate: 1, FencedLate: true})
	return l
}
