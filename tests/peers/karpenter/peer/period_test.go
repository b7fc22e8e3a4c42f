package peer

import (
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestPodsComeAndGo(t *testing.T) {
	// No pod of the shape fits on these nodes.
	ctx, in, catalog := underused(t)
	big := corev1.ResourceList{"cpu": resource.MustParse("1500m"), "memory": resource.MustParse("1Gi")}
	period := &Period{
		StepSeconds: 300, BootSeconds: 60, Shapes: map[string]corev1.ResourceList{"web": big},
		Steps: []map[string]int{{"web": 2}, {}, {}},
	}
	res, err := Follow(ctx, in, catalog, period, time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Anomalies) > 0 {
		t.Fatal(res.Anomalies)
	}
	if res.Created != 2 || res.WaitedSecondsPerPod != 60 || res.WaitingAtEnd != 0 || res.Launched < 1 {
		t.Fatalf("%+v", res)
	}
	// The two pods of the input need one node; the other pods are gone.
	if res.NodesAtEnd != 1 || res.Removed != res.Launched+1 || res.Evicted < 1 {
		t.Fatalf("%+v", res)
	}
	// At least the cheapest node all the time, and less than two of the input and one for each pod.
	if hours := 0.25; res.USD < 0.096*hours || res.USD > 4*0.096*hours {
		t.Fatalf("%+v", res)
	}
}

func TestAnUnknownShapeIsAnError(t *testing.T) {
	path := t.TempDir() + "/workload.json"
	if err := os.WriteFile(path, []byte(`{"stepSeconds": 300, "shapes": {}, "steps": [{"web": 1}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPeriod(path); err == nil {
		t.Fatal("a shape without requests was accepted")
	}
}
