// Command karpenter asks Karpenter's own scheduler, from its published module,
// what it would launch for manifests and a catalog, as `plimsoll plan` is asked.
//
//	karpenter -catalog FILE -input PATH [flags]   one question, the plan as JSON
//	karpenter consolidate -catalog FILE -input PATH [flags]   consolidation to the end, figures as JSON
//	karpenter period -catalog FILE -input PATH -workload FILE     a changing workload, figures as JSON
//	karpenter serve                               a question on each line of stdin, an answer on each line of stdout
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/karpenter/pkg/operator/logging"

	"karpenter/peer"
)

// Question is what is asked, on one line.
type Question struct {
	Input   string `json:"input"`
	Catalog string `json:"catalog"`
	// Seeds vary the UIDs of pods, which is what orders pods that are otherwise equal: one answer for each.
	Seeds []uint64 `json:"seeds"`
	// Figures only: no launches, no pods.
	Summary bool `json:"summary"`
	// Without the sorting and cutting of type lists after Solve: the same nodes and prices where no pool has minValues.
	NoTruncate bool `json:"noTruncate"`
	// Limit on Solve in seconds, none if 0. Karpenter's own is 60.
	TimeoutSeconds float64 `json:"timeoutSeconds"`
}

// Answer is what comes back, on one line.
type Answer struct {
	Karpenter string         `json:"karpenter"`
	Error     string         `json:"error,omitempty"`
	Results   []*peer.Result `json:"results"`
}

func main() {
	log.SetLogger(logging.NopLogger)
	err := run(os.Args[1:], os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "karpenter:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	if len(args) == 1 && args[0] == "serve" {
		return serve(in, out)
	}
	if len(args) > 0 && args[0] == "consolidate" {
		return consolidate(args[1:], out)
	}
	if len(args) > 0 && args[0] == "period" {
		return period(args[1:], out)
	}
	flags := flag.NewFlagSet("karpenter", flag.ContinueOnError)
	var q Question
	flags.StringVar(&q.Catalog, "catalog", "", "catalog JSON `file`")
	flags.StringVar(&q.Input, "input", "", "`directory` (or file) of manifests")
	flags.BoolVar(&q.Summary, "summary", false, "print figures only")
	flags.BoolVar(&q.NoTruncate, "no-truncate", false, "leave out the sorting and cutting of type lists after Solve")
	flags.Float64Var(&q.TimeoutSeconds, "timeout", 60, "limit on Solve in `seconds`, 0 for none")
	seed := flags.Uint64("seed", 0, "orders pods that are otherwise equal")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if q.Catalog == "" || q.Input == "" {
		return errors.New("usage: karpenter -catalog FILE -input PATH [flags] | karpenter consolidate [flags] | karpenter period [flags] | karpenter serve")
	}
	q.Seeds = []uint64{*seed}
	a := (&server{}).answer(&q)
	if a.Error != "" {
		return errors.New(a.Error)
	}
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	return enc.Encode(a.Results[0])
}

// server keeps the catalog that was read last: many questions are about one.
type server struct {
	path    string
	catalog *peer.Catalog
}

func serve(in io.Reader, out io.Writer) error {
	const longestLine = 1 << 20
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, longestLine)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	s := &server{}
	for lines.Scan() {
		var q Question
		var a *Answer
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			a = &Answer{Error: "not a question: " + err.Error()}
		} else {
			a = s.answer(&q)
		}
		if err := enc.Encode(a); err != nil {
			return err
		}
	}
	return lines.Err()
}

// answer tells what went wrong in the answer: one bad question must not end the others.
func (s *server) answer(q *Question) (a *Answer) {
	a = &Answer{Karpenter: version()}
	defer func() {
		if r := recover(); r != nil {
			a.Error = fmt.Sprintf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	if s.catalog == nil || s.path != q.Catalog {
		catalog, err := peer.ReadCatalog(q.Catalog)
		if err != nil {
			a.Error = err.Error()
			return a
		}
		s.path, s.catalog = q.Catalog, catalog
	}
	for _, seed := range q.Seeds {
		res, err := s.solve(q, seed)
		if err != nil {
			a.Error = err.Error()
			return a
		}
		a.Results = append(a.Results, res)
	}
	return a
}

func (s *server) solve(q *Question, seed uint64) (*peer.Result, error) {
	began := time.Now()
	// Objects are changed by a run, so that each has its own.
	input, err := peer.Load(q.Input, seed)
	if err != nil {
		return nil, err
	}
	loaded := time.Since(began).Seconds()
	ctx := log.IntoContext(context.Background(), logging.NopLogger)
	timeout := time.Duration(q.TimeoutSeconds * float64(time.Second))
	// One core is what Karpenter asks for by default, and so one worker.
	const oneCore = 1000
	res, err := peer.Solve(ctx, input, s.catalog, peer.Options{
		PreferencePolicy: "Respect", MinValuesPolicy: "Strict", CPURequests: oneCore,
		Timeout: timeout, SkipTruncate: q.NoTruncate,
	})
	if err != nil {
		return nil, err
	}
	res.Warnings, res.Timing.Load = input.Warnings, loaded
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err == nil {
		res.Timing.PeakRSSMiB = float64(usage.Maxrss) / 1024
	}
	if q.Summary {
		res.Shorten()
	}
	return res, nil
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == "sigs.k8s.io/karpenter" {
				return d.Version
			}
		}
	}
	return "unknown"
}
