package peer

import "time"

// ConsolidateOptions bound one run.
type ConsolidateOptions struct {
	MaxRounds  int
	MaxWall    time.Duration // real time, none if 0
	IdleRounds int           // stop after so many rounds in a row without a command
	Now        time.Time     // start of the simulated clock
	Trace      func(*Round)
	Lander     Lander // where pods of removed nodes go; nil: where commands put them
}

// Round is one pass of the disruption controller.
type Round struct {
	N          int
	Method     string // empty, multi or single; none for an idle round
	Removed    int
	Launched   int
	Evicted    int
	Candidates int
	Nodes      int
	Hourly     float64 // USD per hour, after the round
	CPUSeconds float64
	SimMinutes float64 // since the start
}

// ConsolidateResult is the answer of one run.
type ConsolidateResult struct {
	Karpenter        string         `json:"karpenter"`
	Rounds           int            `json:"rounds"`
	Commands         map[string]int `json:"commands"` // by method
	NodesBefore      int            `json:"nodesBefore"`
	NodesAfter       int            `json:"nodesAfter"`
	HourlyBefore     float64        `json:"hourlyBefore"`
	HourlyAfter      float64        `json:"hourlyAfter"`
	NodesRemoved     int            `json:"nodesRemoved"`
	NodesLaunched    int            `json:"nodesLaunched"`
	Pods             int            `json:"pods"`
	Evictions        int            `json:"evictions"`
	PodsEvicted      int            `json:"podsEvicted"` // at least once
	MostEvictions    int            `json:"mostEvictions"`
	StoppedBy        string         `json:"stoppedBy"`
	CPUSeconds       float64        `json:"cpuSeconds"`
	SimulatedMinutes float64        `json:"simulatedMinutes"`
	PeakRSSMiB       float64        `json:"peakRssMib"`
	// Commands that would have broken a rule, and what this program had to guess.
	Anomalies []string `json:"anomalies,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`
}
