package peer

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lastNode is a Lander that binds pending pods to the last node, if bind is set.
type lastNode struct{ bind bool }

func (l lastNode) Land(objects []client.Object, _ time.Time) (map[client.ObjectKey]string, error) {
	bindings, last := map[client.ObjectKey]string{}, ""
	for _, o := range objects {
		if node, ok := o.(*corev1.Node); ok {
			last = node.Name
		}
	}
	for _, o := range objects {
		if pod, ok := o.(*corev1.Pod); ok && pod.Spec.NodeName == "" && l.bind {
			bindings[client.ObjectKeyFromObject(pod)] = last
		}
	}
	return bindings, nil
}

// landed consolidates two half-empty nodes with a Lander.
func landed(t *testing.T, lander Lander) (*ConsolidateResult, *Input) {
	t.Helper()
	ctx, in, catalog := underused(t)
	o := ConsolidateOptions{MaxRounds: 20, IdleRounds: 3, Now: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), Lander: lander}
	res, err := Consolidate(ctx, in, catalog, o)
	if err != nil {
		t.Fatal(err)
	}
	return res, in
}

func TestEvictedPodsGoWhereTheLanderSays(t *testing.T) {
	res, in := landed(t, lastNode{bind: true})
	if res.NodesAfter != 1 || res.Evictions != 1 || len(res.Anomalies) > 0 || len(in.Store.OnNode("")) > 0 {
		t.Fatalf("%+v, %d pods wait", res, len(in.Store.OnNode("")))
	}
}

func TestAPodThatFindsNoNodeIsReported(t *testing.T) {
	res, in := landed(t, lastNode{})
	if len(in.Store.OnNode("")) != 1 || len(res.Anomalies) == 0 || !strings.Contains(res.Anomalies[0], "has no node") {
		t.Fatalf("%+v, %d pods wait", res, len(in.Store.OnNode("")))
	}
}
