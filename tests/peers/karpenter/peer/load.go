package peer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	awsv1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	yamlstream "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// epoch is the creation time of everything that does not state its own, so
// that one input gives one answer.
var epoch = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))

// Input is everything read from the manifests, after the defaults an API
// server, its admission plugins and the workload controllers would have added.
type Input struct {
	Store    *Store
	Warnings []string
	seed     uint64
}

// Load reads all manifests below path (a directory or a single file).
func Load(path string, seed uint64) (*Input, error) {
	in := &Input{Store: NewStore(), seed: seed}
	var objs []client.Object
	err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		switch filepath.Ext(p) {
		case ".yaml", ".yml", ".json":
		default:
			return nil
		}
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		got, err := in.decode(f)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		objs = append(objs, got...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := in.complete(objs); err != nil {
		return nil, err
	}
	return in, nil
}

func (in *Input) warn(format string, args ...any) {
	in.Warnings = append(in.Warnings, fmt.Sprintf(format, args...))
}

func (in *Input) decode(r io.Reader) ([]client.Object, error) {
	var out []client.Object
	docs := yamlstream.NewYAMLReader(bufio.NewReaderSize(r, 1<<20))
	for n := 1; ; n++ {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		doc = bytes.TrimSpace(doc)
		if len(doc) == 0 {
			continue
		}
		if doc[0] != '{' { // JSON documents are taken as they are
			if doc, err = yaml.YAMLToJSON(doc); err != nil {
				return nil, fmt.Errorf("document %d: %w", n, err)
			}
		}
		if bytes.Equal(doc, []byte("null")) {
			continue
		}
		objs, err := in.decodeJSON(doc)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		out = append(out, objs...)
	}
}

func (in *Input) decodeJSON(doc []byte) ([]client.Object, error) {
	head := struct {
		metav1.TypeMeta `json:",inline"`
		Items           []json.RawMessage `json:"items"`
	}{}
	if err := json.Unmarshal(doc, &head); err != nil {
		return nil, err
	}
	if strings.HasSuffix(head.Kind, "List") {
		var out []client.Object
		for i, item := range head.Items {
			objs, err := in.decodeJSON(item)
			if err != nil {
				return nil, fmt.Errorf("item %d: %w", i, err)
			}
			out = append(out, objs...)
		}
		return out, nil
	}
	gvk := schema.FromAPIVersionAndKind(head.APIVersion, head.Kind)
	blank, err := scheme.Scheme.New(gvk)
	if err != nil {
		in.warn("skipped a %s %s: not a kind this program knows", head.APIVersion, head.Kind)
		return nil, nil
	}
	obj, ok := blank.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%s is not an object", gvk)
	}
	if err := json.Unmarshal(doc, obj); err != nil {
		return nil, fmt.Errorf("%s: %w", gvk, err)
	}
	return []client.Object{obj}, nil
}

// NodeClass returns the named EC2NodeClass, or nil.
func (in *Input) NodeClass(name string) *awsv1.EC2NodeClass {
	nc := &awsv1.EC2NodeClass{}
	if err := in.Store.Get(nil, client.ObjectKey{Name: name}, nc); err != nil { //nolint:staticcheck // the store needs no context
		return nil
	}
	return nc
}
