package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/karpenter/pkg/operator/logging"

	"karpenter/peer"
)

// period runs Karpenter's provisioner and consolidation methods on a workload that changes over time.
func period(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("karpenter period", flag.ContinueOnError)
	catalogPath := flags.String("catalog", "", "catalog JSON `file`")
	input := flags.String("input", "", "`directory` (or file) of manifests")
	workload := flags.String("workload", "", "JSON `file` of the workload")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *catalogPath == "" || *input == "" || *workload == "" {
		return errors.New("usage: karpenter period -catalog FILE -input PATH -workload FILE")
	}
	catalog, err := peer.ReadCatalog(*catalogPath)
	if err != nil {
		return err
	}
	in, err := peer.Load(*input, 0)
	if err != nil {
		return err
	}
	followed, err := peer.ReadPeriod(*workload)
	if err != nil {
		return err
	}
	ctx := log.IntoContext(context.Background(), logging.NopLogger)
	res, err := peer.Follow(ctx, in, catalog, followed, time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
	if err != nil {
		return err
	}
	res.Karpenter = version()
	return json.NewEncoder(out).Encode(res)
}
