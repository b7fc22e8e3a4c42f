package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/karpenter/pkg/operator/logging"

	"karpenter/peer"
)

// consolidate runs Karpenter's consolidation methods on manifests until they find nothing more to do.
func consolidate(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("karpenter consolidate", flag.ContinueOnError)
	catalogPath := flags.String("catalog", "", "catalog JSON `file`")
	input := flags.String("input", "", "`directory` (or file) of manifests")
	o := peer.ConsolidateOptions{Now: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)}
	flags.IntVar(&o.MaxRounds, "max-rounds", 2000, "rounds of the disruption loop")
	flags.DurationVar(&o.MaxWall, "max-wall", 0, "limit on real `time`, 0 for none")
	flags.IntVar(&o.IdleRounds, "idle-rounds", 3, "stop after so many rounds without a command")
	seed := flags.Uint64("seed", 0, "varies UIDs that are not given")
	lander := flags.String("lander", "", "`program` that binds pods of removed nodes, started with the argument land; none: they go where Karpenter's results place them")
	progress := flags.Bool("progress", false, "a line on stderr for each round")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *catalogPath == "" || *input == "" {
		return errors.New("usage: karpenter consolidate -catalog FILE -input PATH [flags]")
	}
	catalog, err := peer.ReadCatalog(*catalogPath)
	if err != nil {
		return err
	}
	in, err := peer.Load(*input, *seed)
	if err != nil {
		return err
	}
	if *lander != "" {
		var end func() error
		if o.Lander, end, err = peer.StartLander(*lander, "land"); err != nil {
			return err
		}
		defer func() { _ = end() }()
	}
	if *progress {
		o.Trace = func(r *peer.Round) {
			fmt.Fprintf(os.Stderr, "%3d %-6s -%d +%d nodes, %d pods evicted, %d nodes, %.3f USD/h, %.2f s, minute %.1f\n",
				r.N, r.Method, r.Removed, r.Launched, r.Evicted, r.Nodes, r.Hourly, r.CPUSeconds, r.SimMinutes)
		}
	}
	res, err := peer.Consolidate(log.IntoContext(context.Background(), logging.NopLogger), in, catalog, o)
	if err != nil {
		return err
	}
	res.Karpenter, res.Warnings = version(), in.Warnings
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err == nil {
		res.PeakRSSMiB = float64(usage.Maxrss) / 1024
	}
	return json.NewEncoder(out).Encode(res)
}
