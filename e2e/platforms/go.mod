module winpool.dev/e2e/platforms

go 1.26.0

// Not the newest: those that releases of containerd require, side by side.

require (
	github.com/opencontainers/image-spec v1.1.0
	winpool.dev/platforms-0.2.1 v0.0.0
	winpool.dev/platforms-1.0.0-rc.0 v0.0.0
	winpool.dev/platforms-1.0.0-rc.1 v0.0.0
	winpool.dev/platforms-1.0.0-rc.2 v0.0.0
	winpool.dev/platforms-1.0.0-rc.4 v0.0.0
	winpool.dev/platforms-1.0.0-rc.5 v0.0.0
)

require (
	github.com/containerd/log v0.1.0 // indirect
	github.com/opencontainers/go-digest v1.0.0 // indirect
	github.com/sirupsen/logrus v1.9.3 // indirect
	golang.org/x/sys v0.26.0 // indirect
)

replace winpool.dev/platforms-0.2.1 => github.com/containerd/platforms v0.2.1

replace winpool.dev/platforms-1.0.0-rc.0 => github.com/containerd/platforms v1.0.0-rc.0

replace winpool.dev/platforms-1.0.0-rc.1 => github.com/containerd/platforms v1.0.0-rc.1

replace winpool.dev/platforms-1.0.0-rc.2 => github.com/containerd/platforms v1.0.0-rc.2

replace winpool.dev/platforms-1.0.0-rc.4 => github.com/containerd/platforms v1.0.0-rc.4

replace winpool.dev/platforms-1.0.0-rc.5 => github.com/containerd/platforms v1.0.0-rc.5
