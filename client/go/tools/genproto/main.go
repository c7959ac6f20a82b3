// Command genproto writes the Go code of the public protocol, from the .proto files at the root of
// the repository, without protoc: it compiles them itself and runs the two Go plugins, whose
// versions are those of this module.
//
// Usage, in client/go/tools: go run ./genproto OUTPUT_FOLDER
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

const (
	// protoFolder is where imports begin, from this module.
	protoFolder = "../../../proto"
	// goPackage is the package that all files of the protocol become. The .proto files name none,
	// since they belong to no language.
	goPackage = "ringfence.io/client/go/internal/pb"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./genproto OUTPUT_FOLDER")
		os.Exit(2)
	}
	if err := generate(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "genproto:", err)
		os.Exit(1)
	}
}

func generate(output string) error {
	found, err := filepath.Glob(filepath.Join(protoFolder, "ringfence/v1/*.proto"))
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("no .proto files in %s/ringfence/v1; run it in client/go/tools", protoFolder)
	}
	var names, parameters []string
	for _, path := range found {
		name := "ringfence/v1/" + filepath.Base(path)
		names = append(names, name)
		parameters = append(parameters, "M"+name+"="+goPackage)
	}
	request := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: names,
		Parameter:      proto.String(strings.Join(append(parameters, "module="+goPackage), ",")),
	}
	if request.ProtoFile, err = compile(names); err != nil {
		return err
	}
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		if err := run(plugin, request, output); err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
	}
	return nil
}

// compile returns the descriptors of the files and of what they import, each behind its imports.
func compile(names []string) ([]*descriptorpb.FileDescriptorProto, error) {
	compiler := protocompile.Compiler{
		Resolver:       &protocompile.SourceResolver{ImportPaths: []string{protoFolder}},
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(context.Background(), names...)
	if err != nil {
		return nil, err
	}
	var ordered []*descriptorpb.FileDescriptorProto
	seen := make(map[string]bool)
	var add func(name string) error
	add = func(name string) error {
		if seen[name] {
			return nil
		}
		seen[name] = true
		file := files.FindFileByPath(name)
		if file == nil {
			return fmt.Errorf("%s is imported and not among the files of the protocol", name)
		}
		for i := range file.Imports().Len() {
			if err := add(file.Imports().Get(i).Path()); err != nil {
				return err
			}
		}
		ordered = append(ordered, protoutil.ProtoFromFileDescriptor(file))
		return nil
	}
	for _, name := range names {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return ordered, nil
}

// run gives a request to a plugin, and writes the files that it answers.
func run(plugin string, request *pluginpb.CodeGeneratorRequest, output string) error {
	input, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	command := exec.Command("go", "tool", plugin)
	command.Stdin = bytes.NewReader(input)
	command.Stderr = os.Stderr
	answered, err := command.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(answered, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return fmt.Errorf("%s", response.GetError())
	}
	for _, file := range response.File {
		path := filepath.Join(output, file.GetName())
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(file.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
