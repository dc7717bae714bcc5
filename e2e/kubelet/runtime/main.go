// Command runtime stands in for containerd: it answers the kubelet over CRI, and runs nothing.
//
// Sandboxes and containers are entries in memory. It writes each call that changes something to its standard output, one
// JSON object a line. What it refuses, and in which words, stands in refusals.go.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type sandbox struct {
	status *cri.PodSandboxStatus
	pod    string
}

type container struct {
	status  *cri.ContainerStatus
	sandbox string
}

type server struct {
	cri.UnimplementedRuntimeServiceServer
	cri.UnimplementedImageServiceServer
	version  string
	handlers []string
	host     host

	mu         sync.Mutex
	last       int
	sandboxes  map[string]*sandbox
	containers map[string]*container
	images     map[string]*cri.Image
}

// report writes a call to the standard output. The mutex is held.
func report(call string, fields map[string]any) {
	fields["call"] = call
	line, err := json.Marshal(fields)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(line))
}

func now() int64 { return time.Now().UnixNano() }

func (s *server) id(kind string) string {
	s.last++
	return fmt.Sprintf("%s-%d", kind, s.last)
}

func (s *server) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{Version: "0.1.0", RuntimeName: "containerd", RuntimeVersion: s.version, RuntimeApiVersion: "v1"}, nil
}

func (s *server) Status(context.Context, *cri.StatusRequest) (*cri.StatusResponse, error) {
	ready := func(kind string) *cri.RuntimeCondition { return &cri.RuntimeCondition{Type: kind, Status: true} }
	status := &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{ready(cri.RuntimeReady), ready(cri.NetworkReady)}}
	response := &cri.StatusResponse{Status: status}
	for _, name := range s.handlers {
		handler := &cri.RuntimeHandler{Name: name, Features: &cri.RuntimeHandlerFeatures{}}
		response.RuntimeHandlers = append(response.RuntimeHandlers, handler)
	}
	return response, nil
}

func (s *server) UpdateRuntimeConfig(context.Context, *cri.UpdateRuntimeConfigRequest) (*cri.UpdateRuntimeConfigResponse, error) {
	return &cri.UpdateRuntimeConfigResponse{}, nil
}

func (s *server) RunPodSandbox(_ context.Context, r *cri.RunPodSandboxRequest) (*cri.RunPodSandboxResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	metadata := r.Config.GetMetadata()
	pod := metadata.GetNamespace() + "/" + metadata.GetName()
	report("RunPodSandbox", map[string]any{"pod": pod, "handler": r.RuntimeHandler})
	if !slices.Contains(s.handlers, r.RuntimeHandler) {
		return nil, status.Errorf(codes.Unknown, "failed to get sandbox runtime: no runtime for %q is configured", r.RuntimeHandler)
	}
	id := s.id("sandbox")
	if err := s.host.startSandbox(id, r.Config.Annotations); err != nil {
		return nil, err
	}
	options := r.Config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	s.sandboxes[id] = &sandbox{pod: pod, status: &cri.PodSandboxStatus{
		Id: id, Metadata: metadata, State: cri.PodSandboxState_SANDBOX_READY, CreatedAt: now(),
		Labels: r.Config.Labels, Annotations: r.Config.Annotations, RuntimeHandler: r.RuntimeHandler,
		// containerd answers this on Windows too. Without it the kubelet restarts sandboxes in the host's network for ever.
		Linux:   &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{Options: options}},
		Network: &cri.PodSandboxNetworkStatus{Ip: fmt.Sprintf("10.244.7.%d", 2+s.last%250)},
	}}
	return &cri.RunPodSandboxResponse{PodSandboxId: id}, nil
}

func (s *server) StopPodSandbox(_ context.Context, r *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.sandboxes[r.PodSandboxId]; found != nil && found.status.State == cri.PodSandboxState_SANDBOX_READY {
		report("StopPodSandbox", map[string]any{"pod": found.pod})
		found.status.State = cri.PodSandboxState_SANDBOX_NOTREADY
	}
	for _, c := range s.containers {
		if c.sandbox == r.PodSandboxId {
			c.stop()
		}
	}
	return &cri.StopPodSandboxResponse{}, nil
}

func (s *server) RemovePodSandbox(_ context.Context, r *cri.RemovePodSandboxRequest) (*cri.RemovePodSandboxResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sandboxes, r.PodSandboxId)
	maps.DeleteFunc(s.containers, func(_ string, c *container) bool { return c.sandbox == r.PodSandboxId })
	return &cri.RemovePodSandboxResponse{}, nil
}

func (s *server) PodSandboxStatus(_ context.Context, r *cri.PodSandboxStatusRequest) (*cri.PodSandboxStatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.sandboxes[r.PodSandboxId]
	if found == nil {
		return nil, status.Errorf(codes.NotFound, "sandbox %s not found", r.PodSandboxId)
	}
	return &cri.PodSandboxStatusResponse{Status: found.status}, nil
}

// matches tells whether the labels have all pairs of the selector.
func matches(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}

func (s *server) ListPodSandbox(_ context.Context, r *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	filter, response := r.GetFilter(), &cri.ListPodSandboxResponse{}
	for id, found := range s.sandboxes {
		one := found.status
		if filter.GetId() != "" && filter.GetId() != id ||
			filter.GetState() != nil && filter.GetState().State != one.State ||
			!matches(filter.GetLabelSelector(), one.Labels) {
			continue
		}
		response.Items = append(response.Items, &cri.PodSandbox{
			Id: id, Metadata: one.Metadata, State: one.State, CreatedAt: one.CreatedAt, Labels: one.Labels,
			Annotations: one.Annotations, RuntimeHandler: one.RuntimeHandler,
		})
	}
	return response, nil
}

func (s *server) CreateContainer(_ context.Context, r *cri.CreateContainerRequest) (*cri.CreateContainerResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.sandboxes[r.PodSandboxId]
	if found == nil {
		return nil, status.Errorf(codes.NotFound, "sandbox %s not found", r.PodSandboxId)
	}
	c := r.Config
	report("CreateContainer", map[string]any{"pod": found.pod, "container": c.Metadata.Name, "image": c.Image.Image})
	id := s.id("container")
	one := &cri.ContainerStatus{
		Id: id, Metadata: c.Metadata, State: cri.ContainerState_CONTAINER_CREATED, CreatedAt: now(), Image: c.Image,
		ImageRef: c.Image.Image, ImageId: c.Image.Image, Labels: c.Labels, Annotations: c.Annotations, Mounts: c.Mounts,
	}
	if folder := r.GetSandboxConfig().GetLogDirectory(); folder != "" && c.LogPath != "" {
		one.LogPath = folder + "/" + c.LogPath
	}
	s.containers[id] = &container{status: one, sandbox: r.PodSandboxId}
	return &cri.CreateContainerResponse{ContainerId: id}, nil
}

func (s *server) StartContainer(_ context.Context, r *cri.StartContainerRequest) (*cri.StartContainerResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.containers[r.ContainerId]
	if c == nil {
		return nil, status.Errorf(codes.NotFound, "container %s not found", r.ContainerId)
	}
	if err := s.host.start(c.status.Id, c.status.Image.Image); err != nil {
		return nil, err
	}
	c.status.State, c.status.StartedAt = cri.ContainerState_CONTAINER_RUNNING, now()
	return &cri.StartContainerResponse{}, nil
}

func (c *container) stop() {
	if c.status.State == cri.ContainerState_CONTAINER_RUNNING {
		c.status.State, c.status.FinishedAt, c.status.Reason = cri.ContainerState_CONTAINER_EXITED, now(), "Completed"
	}
}

func (s *server) StopContainer(_ context.Context, r *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.containers[r.ContainerId]; c != nil {
		c.stop()
	}
	return &cri.StopContainerResponse{}, nil
}

func (s *server) RemoveContainer(_ context.Context, r *cri.RemoveContainerRequest) (*cri.RemoveContainerResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.containers, r.ContainerId)
	return &cri.RemoveContainerResponse{}, nil
}

func (s *server) ListContainers(_ context.Context, r *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	filter, response := r.GetFilter(), &cri.ListContainersResponse{}
	for id, c := range s.containers {
		one := c.status
		if filter.GetId() != "" && filter.GetId() != id ||
			filter.GetState() != nil && filter.GetState().State != one.State ||
			filter.GetPodSandboxId() != "" && filter.GetPodSandboxId() != c.sandbox ||
			!matches(filter.GetLabelSelector(), one.Labels) {
			continue
		}
		response.Containers = append(response.Containers, &cri.Container{
			Id: id, PodSandboxId: c.sandbox, Metadata: one.Metadata, Image: one.Image, ImageRef: one.ImageRef,
			ImageId: one.ImageId, State: one.State, CreatedAt: one.CreatedAt, Labels: one.Labels, Annotations: one.Annotations,
		})
	}
	return response, nil
}

func (s *server) ContainerStatus(_ context.Context, r *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.containers[r.ContainerId]
	if c == nil {
		return nil, status.Errorf(codes.NotFound, "container %s not found", r.ContainerId)
	}
	return &cri.ContainerStatusResponse{Status: c.status}, nil
}

func (s *server) ListContainerStats(context.Context, *cri.ListContainerStatsRequest) (*cri.ListContainerStatsResponse, error) {
	return &cri.ListContainerStatsResponse{}, nil
}

func (s *server) ListPodSandboxStats(context.Context, *cri.ListPodSandboxStatsRequest) (*cri.ListPodSandboxStatsResponse, error) {
	return &cri.ListPodSandboxStatsResponse{}, nil
}

func (s *server) ListImages(context.Context, *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &cri.ListImagesResponse{Images: slices.Collect(maps.Values(s.images))}, nil
}

func (s *server) ImageStatus(_ context.Context, r *cri.ImageStatusRequest) (*cri.ImageStatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &cri.ImageStatusResponse{Image: s.images[r.GetImage().GetImage()]}, nil
}

func (s *server) PullImage(_ context.Context, r *cri.PullImageRequest) (*cri.PullImageResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := r.GetImage().GetImage()
	report("PullImage", map[string]any{"image": name})
	if err := s.host.pull(name); err != nil {
		return nil, err
	}
	s.images[name] = &cri.Image{Id: name, RepoTags: []string{name}, Size: 1 << 20, Spec: r.Image}
	return &cri.PullImageResponse{ImageRef: name}, nil
}

func (s *server) RemoveImage(_ context.Context, r *cri.RemoveImageRequest) (*cri.RemoveImageResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.images, r.GetImage().GetImage())
	return &cri.RemoveImageResponse{}, nil
}

func (s *server) ImageFsInfo(context.Context, *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	usage := []*cri.FilesystemUsage{{
		Timestamp: now(), FsId: &cri.FilesystemIdentifier{Mountpoint: `C:\`},
		UsedBytes: &cri.UInt64Value{Value: 1 << 20}, InodesUsed: &cri.UInt64Value{Value: 1},
	}}
	return &cri.ImageFsInfoResponse{ImageFilesystems: usage, ContainerFilesystems: usage}, nil
}

func main() {
	version := flag.String("version", "1.7.20", "the version of containerd to report")
	handlers := flag.String("handlers", "runhcs-wcow-process", "runtime handlers besides the default one, separated by commas")
	build := flag.String("build", "10.0.20348.0", "the Windows version of the node")
	pause := flag.String("pause", "", "the Windows version of the pause image; that of the node if not said")
	port := flag.Int("port", 0, "the port of 127.0.0.1 to listen on")
	flag.Parse()

	host, err := newHost(*build, *pause)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		log.Fatal(err)
	}
	s := &server{
		version: *version, handlers: append([]string{""}, strings.Split(*handlers, ",")...), host: host,
		sandboxes: map[string]*sandbox{}, containers: map[string]*container{}, images: map[string]*cri.Image{},
	}
	services := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(services, s)
	cri.RegisterImageServiceServer(services, s)
	report("listening", map[string]any{"port": listener.Addr().(*net.TCPAddr).Port, "pid": os.Getpid()})
	log.Fatal(services.Serve(listener))
}
