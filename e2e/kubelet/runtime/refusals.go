package main

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// windows is build and revision of 10.0.<build>.<revision>.
type windows struct{ build, revision int }

// releases are what the tags of images that Microsoft makes for a release end with.
var releases = map[string]windows{"ltsc2019": {build: 17763}, "ltsc2022": {build: 20348}, "ltsc2025": {build: 26100}}

// single begins the tag of an image without an index. containerd compares no platform when it pulls one.
const single = "single-"

// linux ends the tag of an image for Linux only.
const linux = "linux"

// networkAnnotation is set on pods that the network of the node refuses.
const networkAnnotation = "test.winpool.dev/network-error"

// host is the Windows that containers would start on, and what its pause image was made for.
type host struct{ windows, pause windows }

func newHost(version, pause string) (host, error) {
	if pause == "" {
		pause = version
	}
	of, ok := parse(version)
	if !ok {
		return host{}, fmt.Errorf("%q is not a Windows version such as 10.0.20348.2655", version)
	}
	made, ok := parse(pause)
	if !ok {
		return host{}, fmt.Errorf("%q is not a Windows version such as 10.0.20348.2655", pause)
	}
	return host{of, made}, nil
}

// parse reads 10.0.<build> with or without a revision.
func parse(version string) (windows, bool) {
	numbers := strings.Split(version, ".")
	if len(numbers) < 3 || len(numbers) > 4 || numbers[0] != "10" || numbers[1] != "0" {
		return windows{}, false
	}
	build, err := strconv.Atoi(numbers[2])
	if err != nil {
		return windows{}, false
	}
	if len(numbers) == 3 {
		return windows{build: build}, true
	}
	revision, err := strconv.Atoi(numbers[3])
	return windows{build, revision}, err == nil
}

// platform is the Windows that the tag of an image names. An image without such a tag fits every host.
func platform(image string) (windows, bool) {
	_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	for name, release := range releases {
		if strings.HasSuffix(tag, name) {
			return release, true
		}
	}
	return parse(strings.TrimPrefix(tag, single))
}

// fits is the rule of containerd 1.7.19 and later (github.com/containerd/platforms v0.2.1): equal builds before Windows
// Server 2022, and since then an image that is not newer than the host.
func (h host) fits(image windows) bool {
	if h.windows.build < 20348 {
		return image.build == h.windows.build
	}
	return image.build >= 20348 && image.build <= h.windows.build
}

func (h host) pull(image string) error {
	made, ok := platform(image)
	isSingle, isLinux := strings.Contains(image, ":"+single), strings.HasSuffix(image, linux)
	// https://github.com/microsoft/hcsshim/issues/2226
	if isSingle && isLinux {
		return status.Errorf(codes.Unknown, "failed to pull and unpack image %q: failed to extract layer: "+
			`hcsshim::ProcessBaseLayer \\?\C:\ProgramData\containerd\snapshots\25: The system cannot find the path specified.: unknown`, image)
	}
	if isLinux || ok && !isSingle && !h.fits(made) {
		return status.Errorf(codes.NotFound,
			"failed to pull and unpack image %q: no match for platform in manifest: not found", image)
	}
	return nil
}

func (h host) startSandbox(id string, annotations map[string]string) error {
	if message, ok := annotations[networkAnnotation]; ok {
		return status.Errorf(codes.Unknown, "failed to setup network for sandbox %q: %s", id, message)
	}
	if !h.fits(h.pause) {
		return status.Errorf(codes.Unknown, "failed to start sandbox %q: %s", id, mismatch(id))
	}
	return nil
}

func (h host) start(id, image string) error {
	made, ok := platform(image)
	if !ok {
		return nil
	}
	if !h.fits(made) {
		return status.Error(codes.Unknown, mismatch(id))
	}
	// https://github.com/microsoft/Windows-Containers/issues/591
	if made.build == h.windows.build && made.revision > h.windows.revision {
		return status.Errorf(codes.Unknown, "failed to create containerd task: failed to create shim task: "+
			"hcs::System::Start %s: The virtual machine or container exited unexpectedly. (0xc0370106): unknown", id)
	}
	return nil
}

// mismatch is what hcsshim says of an image for another Windows.
func mismatch(id string) string {
	return fmt.Sprintf("failed to create containerd task: failed to create shim task: hcs::CreateComputeSystem %s: "+
		"The container operating system does not match the host operating system. (0xc0370101): unknown", id)
}
