// Command client asks a Plimsoll scheduler for a plan and prints it.
//
// The scheduler holds no state: the request brings all that there is to know, and the same request gets the same answer.
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
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

const (
	file    = "plimsoll/scheduler/v1/scheduler.proto"
	service = "SchedulerService"
	method  = "Plan"
	// A plan takes seconds for the largest clusters.
	timeout = 60 * time.Second
	// The scheduler sends at most 16 MiB, and gRPC accepts 4 MiB by default.
	maxAnswer = 16 << 20
)

func main() {
	scheduler := flag.String("scheduler", "127.0.0.1:9452", "host:port of the scheduler's open port")
	protos := flag.String("proto", "proto", "the folder of the .proto files")
	flag.Parse()
	if err := run(*scheduler, *protos, os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run sends the request that in holds and writes the plan to out.
func run(scheduler, protos string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	call, err := describe(ctx, protos)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	request := dynamicpb.NewMessage(call.Input())
	if err := protojson.Unmarshal(text, request); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	// The open port speaks gRPC without TLS. Nothing but plans can be asked for there.
	connection, err := grpc.NewClient(scheduler, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("scheduler %s: %w", scheduler, err)
	}
	defer connection.Close()
	answer := dynamicpb.NewMessage(call.Output())
	name := fmt.Sprintf("/%s/%s", call.Parent().FullName(), call.Name())
	if err := connection.Invoke(ctx, name, request, answer, grpc.MaxCallRecvMsgSize(maxAnswer)); err != nil {
		return fmt.Errorf("scheduler %s: %w", scheduler, err)
	}
	printed, err := protojson.MarshalOptions{Multiline: true}.Marshal(answer)
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	_, err = fmt.Fprintf(out, "%s\n", printed)
	return err
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
