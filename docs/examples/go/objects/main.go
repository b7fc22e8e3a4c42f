// Command objects asks a Plimsoll scheduler which nodes Kubernetes objects want, and prints the plan in lines.
//
// The objects are read from stdin, as kubectl get -o json prints them. The scheduler holds no state.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/bufbuild/protocompile"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

const (
	file    = "plimsoll/objects/v1/objects.proto"
	service = "ObjectPlannerService"
	method  = "PlanObjects"
	// A plan takes seconds for the largest clusters.
	timeout = 60 * time.Second
	// The scheduler sends at most 16 MiB, and gRPC accepts 4 MiB by default.
	maxAnswer = 16 << 20
)

func main() {
	scheduler := flag.String("scheduler", "127.0.0.1:9452", "host:port of the scheduler's open port")
	region := flag.String("region", "us-east-1", "region of the built-in catalog")
	protos := flag.String("proto", "proto", "the folder of the .proto files")
	flag.Parse()
	if err := run(*scheduler, *region, *protos, os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run sends the objects that in holds and writes the lines of the plan to out.
func run(scheduler, region, protos string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	call, err := describe(ctx, protos)
	if err != nil {
		return err
	}
	objects, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("objects: %w", err)
	}
	fields := call.Input().Fields()
	request := dynamicpb.NewMessage(call.Input())
	request.Mutable(fields.ByName("objects")).List().Append(protoreflect.ValueOfString(string(objects)))
	request.Set(fields.ByName("region"), protoreflect.ValueOfString(region))
	// The open port speaks gRPC without TLS. Nothing but plans can be asked for there.
	connection, err := grpc.NewClient(scheduler, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("scheduler %s: %w", scheduler, err)
	}
	defer connection.Close()
	answer := dynamicpb.NewMessage(call.Output())
	name := fmt.Sprintf("/%s/%s", call.Parent().FullName(), call.Name())
	if err := connection.Invoke(ctx, name, request, answer, grpc.MaxCallRecvMsgSize(maxAnswer)); err != nil {
		// INVALID_ARGUMENT names the object and the field of each fault.
		return fmt.Errorf("scheduler %s: %w", scheduler, err)
	}
	lines := answer.Get(call.Output().Fields().ByName("lines")).List()
	for index := range lines.Len() {
		if _, err := fmt.Fprintln(out, lines.Get(index).String()); err != nil {
			return err
		}
	}
	return nil
}

// describe reads the method's description from the .proto files.
func describe(ctx context.Context, protos string) (protoreflect.MethodDescriptor, error) {
	resolver := &protocompile.SourceResolver{ImportPaths: []string{protos}}
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(resolver)}
	files, err := compiler.Compile(ctx, file)
	if err != nil {
		return nil, fmt.Errorf("proto: %w", err)
	}
	found := files[0].Services().ByName(service)
	if found == nil || found.Methods().ByName(method) == nil {
		return nil, fmt.Errorf("proto: %s has no %s.%s", file, service, method)
	}
	return found.Methods().ByName(method), nil
}
