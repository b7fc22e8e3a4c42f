package peer

import (
	"math"
	"sort"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"
)

// Result is the answer of one run: a plan as the contract has it, and what it took.
type Result struct {
	Seed          uint64          `json:"seed"`
	Launches      []Launch        `json:"launches"`
	Existing      []Existing      `json:"existing"`
	Terminations  []struct{}      `json:"terminations"`
	Unschedulable []Unschedulable `json:"unschedulable"`
	Ignored       []Ignored       `json:"ignored"`
	Cost          Cost            `json:"cost"`
	Summary       Summary         `json:"summary"`
	Timing        Timing          `json:"timing"`
	TimedOut      bool            `json:"timedOut"`
	Warnings      []string        `json:"warnings,omitempty"`
}

// Timing says what took how long, in seconds.
type Timing struct {
	Load     float64 `json:"load"`
	Setup    float64 `json:"setup"`
	Solve    float64 `json:"solve"`
	SolveCPU float64 `json:"solveCpu"`
	// Karpenter sorts and cuts the type list of each launch after Solve. With
	// hundreds of launches on a full catalog that takes longer than Solve.
	Truncate    float64 `json:"truncate"`
	TruncateCPU float64 `json:"truncateCpu"`
	PeakRSSMiB  float64 `json:"peakRssMib"`
}

// Summary has the counts, so that a large answer need not be parsed for them.
type Summary struct {
	PendingPods       int `json:"pendingPods"`
	LaunchedNodes     int `json:"launchedNodes"`
	PodsOnLaunches    int `json:"podsOnLaunches"`
	PodsOnExisting    int `json:"podsOnExisting"`
	PodsUnschedulable int `json:"podsUnschedulable"`
}

// Launch is one machine to buy.
type Launch struct {
	NodePool           string            `json:"nodePool"`
	InstanceTypes      []string          `json:"instanceTypes"`
	InstanceTypesTotal int               `json:"instanceTypesTotal"`
	Zones              []string          `json:"zones"`
	CapacityTypes      []string          `json:"capacityTypes"`
	Offering           *Offering         `json:"offering"`
	Requirements       []Requirement     `json:"requirements"`
	Requests           map[string]string `json:"requests"`
	Pods               []string          `json:"pods"`
}

// Offering is one way to buy one machine.
type Offering struct {
	InstanceType string  `json:"instanceType"`
	Zone         string  `json:"zone"`
	CapacityType string  `json:"capacityType"`
	Price        float64 `json:"price"`
}

// Requirement is one constraint of a NodeClaim.
type Requirement struct {
	Key       string   `json:"key"`
	Operator  string   `json:"operator"`
	Values    []string `json:"values"`
	MinValues *int     `json:"minValues,omitempty"`
}

// Existing says which pending pods a node already there takes.
type Existing struct {
	Node string   `json:"node"`
	Pods []string `json:"pods"`
}

// Unschedulable says why a pod finds no place.
type Unschedulable struct {
	Pod     string   `json:"pod"`
	Reasons []Reason `json:"reasons"`
}

// Reason is what Karpenter says; it has no codes.
type Reason struct {
	NodePool string `json:"nodePool"`
	Code     string `json:"code"`
	Message  string `json:"message"`
}

// Ignored is a pod that never reaches the scheduler.
type Ignored struct {
	Pod    string `json:"pod"`
	Reason string `json:"reason"`
}

// Cost is what the launches cost together.
type Cost struct {
	Hourly float64 `json:"hourly"`
}

func newResult(seed uint64) *Result {
	return &Result{
		Seed: seed, Launches: []Launch{}, Existing: []Existing{}, Terminations: []struct{}{},
		Unschedulable: []Unschedulable{}, Ignored: []Ignored{},
	}
}

func (r *Result) refuse(p *corev1.Pod, message string) {
	reason := Reason{Code: "Karpenter", Message: message}
	r.Unschedulable = append(r.Unschedulable, Unschedulable{Pod: nameOf(p), Reasons: []Reason{reason}})
}

// Shorten leaves out what a large answer has too much of: all but the figures and a few of the refusals.
func (r *Result) Shorten() {
	const kept = 5
	r.Launches, r.Existing, r.Ignored = []Launch{}, []Existing{}, []Ignored{}
	if len(r.Unschedulable) > kept {
		r.Unschedulable = r.Unschedulable[:kept]
	}
}

func report(results scheduling.Results, pods []*corev1.Pod, res *Result, costOnly bool) {
	placed := sets.New[types.UID]()
	for _, nc := range results.NewNodeClaims {
		l := launch(nc, costOnly)
		for _, p := range nc.Pods {
			placed.Insert(p.UID)
		}
		if l.Offering != nil {
			res.Cost.Hourly += l.Offering.Price
		}
		res.Summary.PodsOnLaunches += len(nc.Pods)
		res.Launches = append(res.Launches, l)
	}
	res.Cost.Hourly = math.Round(res.Cost.Hourly*1e6) / 1e6
	res.Summary.LaunchedNodes = len(res.Launches)
	for _, en := range results.ExistingNodes {
		if len(en.Pods) == 0 {
			continue
		}
		e := Existing{Node: en.Name()}
		for _, p := range en.Pods {
			placed.Insert(p.UID)
			e.Pods = append(e.Pods, nameOf(p))
		}
		res.Summary.PodsOnExisting += len(en.Pods)
		res.Existing = append(res.Existing, e)
	}
	for p, err := range results.PodErrors {
		placed.Insert(p.UID)
		res.refuse(p, err.Error())
	}
	for _, p := range pods {
		if !placed.Has(p.UID) {
			res.refuse(p, "not reached before the timeout")
		}
	}
	sort.Slice(res.Unschedulable, func(i, j int) bool { return res.Unschedulable[i].Pod < res.Unschedulable[j].Pod })
	res.Summary.PodsUnschedulable = len(res.Unschedulable)
}

func launch(n *scheduling.NodeClaim, costOnly bool) Launch {
	l := Launch{NodePool: n.NodePoolName, Requests: map[string]string{}}
	claim := &karpv1.NodeClaim{Spec: n.Spec}
	if !costOnly {
		claim = n.ToNodeClaim() // also narrows n.Requirements to the types and capacity types kept
	}
	for _, p := range n.Pods {
		l.Pods = append(l.Pods, nameOf(p))
	}
	zones, capacityTypes := sets.New[string](), sets.New[string]()
	for _, it := range n.InstanceTypeOptions {
		l.InstanceTypes = append(l.InstanceTypes, it.Name)
		for _, o := range it.Offerings.Available().Compatible(n.Requirements) {
			zones.Insert(o.Zone())
			capacityTypes.Insert(o.CapacityType())
			c := &Offering{InstanceType: it.Name, Zone: o.Zone(), CapacityType: o.CapacityType(), Price: o.Price}
			if l.Offering == nil || less(c, l.Offering) {
				l.Offering = c
			}
		}
	}
	l.InstanceTypesTotal = len(l.InstanceTypes)
	l.Zones, l.CapacityTypes = sets.List(zones), sets.List(capacityTypes)
	for _, r := range claim.Spec.Requirements {
		values := append([]string{}, r.Values...)
		sort.Strings(values)
		if r.Key == corev1.LabelInstanceTypeStable {
			values = []string{} // they are l.InstanceTypes
		}
		l.Requirements = append(l.Requirements, Requirement{Key: r.Key, Operator: string(r.Operator), Values: values, MinValues: r.MinValues})
	}
	sort.Slice(l.Requirements, func(i, j int) bool { return l.Requirements[i].Key < l.Requirements[j].Key })
	for name, q := range claim.Spec.Resources.Requests {
		if !resources.IsZero(q) {
			l.Requests[string(name)] = q.String()
		}
	}
	return l
}

func less(a, b *Offering) bool {
	if a.Price != b.Price {
		return a.Price < b.Price
	}
	if a.InstanceType != b.InstanceType {
		return a.InstanceType < b.InstanceType
	}
	if a.Zone != b.Zone {
		return a.Zone < b.Zone
	}
	return a.CapacityType < b.CapacityType
}
