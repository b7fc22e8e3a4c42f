package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

const simple = `"input":"peer/testdata/simple/cluster.yaml","catalog":"peer/testdata/simple/catalog.json"`

func answers(t *testing.T, questions ...string) []Answer {
	t.Helper()
	var out bytes.Buffer
	if err := run([]string{"serve"}, strings.NewReader(strings.Join(questions, "\n")), &out); err != nil {
		t.Fatal(err)
	}
	var all []Answer
	for dec := json.NewDecoder(&out); dec.More(); {
		var a Answer
		if err := dec.Decode(&a); err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	return all
}

func TestServeAnswersEachSeedAndOutlivesBadQuestions(t *testing.T) {
	got := answers(t,
		`{`+simple+`,"seeds":[0,1,2]}`,
		`nonsense`,
		`{"input":"missing","catalog":"peer/testdata/simple/catalog.json","seeds":[0]}`,
		`{`+simple+`,"seeds":[0],"summary":true,"noTruncate":true}`,
	)
	if len(got) != 4 {
		t.Fatalf("%d answers to 4 questions", len(got))
	}
	if got[0].Error != "" || len(got[0].Results) != 3 {
		t.Fatalf("three seeds: %+v", got[0])
	}
	if got[1].Error == "" || got[2].Error == "" {
		t.Errorf("bad questions were answered: %+v %+v", got[1], got[2])
	}
	full, short := got[0].Results[0], got[3].Results[0]
	if len(full.Launches) == 0 || len(short.Launches) != 0 {
		t.Errorf("launches: %d in full, %d in short", len(full.Launches), len(short.Launches))
	}
	if full.Cost != short.Cost || full.Summary != short.Summary || full.Cost.Hourly <= 0 {
		t.Errorf("figures differ: %+v %+v, %+v %+v", full.Cost, full.Summary, short.Cost, short.Summary)
	}
}

func TestOneQuestionNeedsBothFiles(t *testing.T) {
	if err := run([]string{"-catalog", "x"}, nil, nil); err == nil {
		t.Error("no input, no error")
	}
}
