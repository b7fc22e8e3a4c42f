package peer

import (
	"context"
	"reflect"
	"sort"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/karpenter/pkg/operator/logging"
)

func init() { log.SetLogger(logging.NopLogger) }

// places says where each pod went: pool/zones for a launch, the node's name, or "-".
func places(t *testing.T, file string, change func(*Options)) map[string]string {
	t.Helper()
	catalog, err := ReadCatalog("testdata/simple/catalog.json")
	if err != nil {
		t.Fatal(err)
	}
	in, err := Load("testdata/"+file, 0)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{PreferencePolicy: "Respect", MinValuesPolicy: "Strict", CPURequests: 1000}
	if change != nil {
		change(&o)
	}
	ctx := log.IntoContext(context.Background(), logging.NopLogger)
	res, err := Solve(ctx, in, catalog, o)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, l := range res.Launches {
		where := l.NodePool
		for _, z := range l.Zones {
			where += " " + z
		}
		for _, p := range l.Pods {
			got[p] = where
		}
	}
	for _, e := range res.Existing {
		for _, p := range e.Pods {
			got[p] = e.Node
		}
	}
	for _, u := range res.Unschedulable {
		got[u.Pod] = "-"
	}
	return got
}

func TestExamples(t *testing.T) {
	ignore := func(o *Options) { o.PreferencePolicy = "Ignore" }
	bestEffort := func(o *Options) { o.MinValuesPolicy = "BestEffort" }
	const either = "default us-east-1a us-east-1b"
	for _, c := range []struct {
		name, file string
		change     func(*Options)
		want       []string // the places, sorted: which of two equal pods goes where is the seed's affair
	}{
		{"weight first, then what the limit leaves", "features/weights.yaml", nil, []string{"a-light us-east-1a us-east-1b", "b-heavy us-east-1a us-east-1b"}},
		{"volumes bind to zones", "features/volumes.yaml", nil, []string{"-", "default us-east-1a", "default us-east-1b"}},
		{"a fresh node, limits, daemon sets", "features/existing.yaml", nil, []string{"-", "-", either, "fresh"}},
		{"preferences respected", "features/preferences.yaml", nil, []string{"default us-east-1a", "default us-east-1b"}},
		{"preferences ignored", "features/preferences.yaml", ignore, []string{either, either}},
		{"minValues strict", "features/minvalues.yaml", nil, []string{"-"}},
		{"minValues best effort", "features/minvalues.yaml", bestEffort, []string{either}},
		{"spread counts what runs", "simple/cluster.yaml", nil, []string{"-", "default us-east-1a", "default us-east-1a",
			"default us-east-1b", "default us-east-1b", "default us-east-1b", "old-1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, where := range places(t, c.file, c.change) {
				got = append(got, where)
			}
			sort.Strings(got)
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
