package peer

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/karpenter/pkg/operator/logging"
)

// underused is two half-empty nodes with a catalog, and a context without a log.
func underused(t *testing.T) (context.Context, *Input, *Catalog) {
	t.Helper()
	catalog, err := ReadCatalog("testdata/simple/catalog.json")
	if err != nil {
		t.Fatal(err)
	}
	in, err := Load("testdata/features/underused.yaml", 0)
	if err != nil {
		t.Fatal(err)
	}
	return log.IntoContext(context.Background(), logging.NopLogger), in, catalog
}

// consolidated runs the methods on two half-empty nodes; protect marks the pods do-not-disrupt.
func consolidated(t *testing.T, protect bool) *ConsolidateResult {
	t.Helper()
	ctx, in, catalog := underused(t)
	if protect {
		_ = Each(in.Store, "Pod", func(p *corev1.Pod) error {
			p.Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"}
			return nil
		})
	}
	o := ConsolidateOptions{MaxRounds: 20, IdleRounds: 3, Now: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)}
	res, err := Consolidate(ctx, in, catalog, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Anomalies) > 0 {
		t.Fatal(res.Anomalies)
	}
	return res
}

func TestTwoHalfEmptyNodesBecomeOne(t *testing.T) {
	res := consolidated(t, false)
	if res.NodesBefore != 2 || res.NodesAfter != 1 || res.Evictions < 1 || res.HourlyAfter >= res.HourlyBefore {
		t.Fatalf("%+v", res)
	}
}

func TestProtectedPodsKeepTheirNodes(t *testing.T) {
	res := consolidated(t, true)
	if res.NodesAfter != 2 || res.Evictions != 0 {
		t.Fatalf("%+v", res)
	}
}
