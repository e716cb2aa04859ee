// An NRI plugin on the stub of the nri module. It records every event, and adjusts a container as an annotation of its
// pod requests: what the sample plugins of the module do, each for one kind of adjustment.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"google.golang.org/protobuf/encoding/protojson"
)

type plugin struct {
	stub  stub.Stub
	name  string
	lock  sync.Mutex
	file  *os.File
	hangs bool
}

type event struct {
	Event     string         `json:"event"`
	Pod       string         `json:"pod,omitempty"`
	Container string         `json:"container,omitempty"`
	Known     []string       `json:"known,omitempty"`
	Seen      *api.Container `json:"seen,omitempty"`
}

func (p *plugin) record(e event) {
	p.lock.Lock()
	defer p.lock.Unlock()
	line, err := json.Marshal(e)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	p.file.Write(append(line, '\n'))
}

func (p *plugin) pod(name string, pod *api.PodSandbox) error {
	p.record(event{Event: name, Pod: pod.GetName()})
	return nil
}

func (p *plugin) container(name string, pod *api.PodSandbox, container *api.Container) error {
	p.record(event{Event: name, Pod: pod.GetName(), Container: container.GetName()})
	return nil
}

// requested returns the message that an annotation of the pod holds for a container: adjust.<plugin>/<container>, …
func (p *plugin) requested(kind string, pod *api.PodSandbox, container *api.Container) (string, bool) {
	text, ok := pod.GetAnnotations()[kind+"."+p.name+"/"+container.GetName()]
	return text, ok
}

func (p *plugin) Configure(_ context.Context, config, runtime, version string) (stub.EventMask, error) {
	p.record(event{Event: "Configure"})
	return 0, nil
}

func (p *plugin) Synchronize(_ context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	known := []string{}
	for _, pod := range pods {
		known = append(known, pod.GetName())
	}
	for _, container := range containers {
		known = append(known, container.GetName())
	}
	p.record(event{Event: "Synchronize", Known: known})
	return nil, nil
}

func (p *plugin) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	return p.pod("RunPodSandbox", pod)
}

func (p *plugin) StopPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	return p.pod("StopPodSandbox", pod)
}

func (p *plugin) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	return p.pod("RemovePodSandbox", pod)
}

func (p *plugin) CreateContainer(_ context.Context, pod *api.PodSandbox, container *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	p.record(event{Event: "CreateContainer", Pod: pod.GetName(), Container: container.GetName(), Seen: container})
	if p.hangs {
		time.Sleep(time.Hour)
	}
	if _, ok := p.requested("refuse", pod, container); ok {
		return nil, nil, fmt.Errorf("refused on request")
	}
	text, ok := p.requested("adjust", pod, container)
	if !ok {
		return nil, nil, nil
	}
	adjust := &api.ContainerAdjustment{}
	if err := protojson.Unmarshal([]byte(text), adjust); err != nil {
		return nil, nil, err
	}
	return adjust, nil, nil
}

func (p *plugin) PostCreateContainer(_ context.Context, pod *api.PodSandbox, container *api.Container) error {
	return p.container("PostCreateContainer", pod, container)
}

func (p *plugin) StartContainer(_ context.Context, pod *api.PodSandbox, container *api.Container) error {
	return p.container("StartContainer", pod, container)
}

func (p *plugin) PostStartContainer(_ context.Context, pod *api.PodSandbox, container *api.Container) error {
	return p.container("PostStartContainer", pod, container)
}

func (p *plugin) UpdateContainer(_ context.Context, pod *api.PodSandbox, container *api.Container, _ *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	p.container("UpdateContainer", pod, container)
	text, ok := p.requested("update", pod, container)
	if !ok {
		return nil, nil
	}
	update := &api.ContainerUpdate{}
	if err := protojson.Unmarshal([]byte(text), update); err != nil {
		return nil, err
	}
	update.ContainerId = container.GetId()
	return []*api.ContainerUpdate{update}, nil
}

func (p *plugin) PostUpdateContainer(_ context.Context, pod *api.PodSandbox, container *api.Container) error {
	return p.container("PostUpdateContainer", pod, container)
}

func (p *plugin) StopContainer(_ context.Context, pod *api.PodSandbox, container *api.Container) ([]*api.ContainerUpdate, error) {
	return nil, p.container("StopContainer", pod, container)
}

func (p *plugin) RemoveContainer(_ context.Context, pod *api.PodSandbox, container *api.Container) error {
	return p.container("RemoveContainer", pod, container)
}

func main() {
	name := flag.String("name", "", "name of the plugin; by default the engine that launches it sets it")
	index := flag.String("idx", "", "index of the plugin")
	path := flag.String("socket", "", "socket of the engine")
	log := flag.String("log", "/dev/null", "file that events are appended to")
	hangs := flag.Bool("hang", false, "never answer the creation of a container")
	flag.Parse()
	file, err := os.OpenFile(*log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	p := &plugin{name: *name, file: file, hangs: *hangs}
	if p.name == "" {
		p.name = os.Getenv("NRI_PLUGIN_NAME")
	}
	options := []stub.Option{}
	for value, option := range map[string]func(string) stub.Option{*name: stub.WithPluginName, *index: stub.WithPluginIdx, *path: stub.WithSocketPath} {
		if value != "" {
			options = append(options, option(value))
		}
	}
	if p.stub, err = stub.New(p, options...); err == nil {
		err = p.stub.Run(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
