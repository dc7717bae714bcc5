module winpool.dev/e2e/platforms

go 1.26.0

// Not the newest: those that releases of containerd require, side by side.

require (
	github.com/opencontainers/image-spec v1.1.0
	winpool.dev/containerd-1.7.18 v0.0.0
	winpool.dev/platforms-0.2.1 v0.0.0
	winpool.dev/platforms-1.0.0-rc.0 v0.0.0
	winpool.dev/platforms-1.0.0-rc.1 v0.0.0
	winpool.dev/platforms-1.0.0-rc.2 v0.0.0
	winpool.dev/platforms-1.0.0-rc.4 v0.0.0
	winpool.dev/platforms-1.0.0-rc.5 v0.0.0
)

require (
	github.com/Microsoft/hcsshim v0.11.5 // indirect
	github.com/containerd/errdefs v0.1.0 // indirect
	github.com/containerd/log v0.1.0 // indirect
	github.com/golang/protobuf v1.5.4 // indirect
	github.com/opencontainers/go-digest v1.0.0 // indirect
	github.com/sirupsen/logrus v1.9.3 // indirect
	golang.org/x/sys v0.26.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20231002182017-d307bd883b97 // indirect
	google.golang.org/grpc v1.59.0 // indirect
	google.golang.org/protobuf v1.33.0 // indirect
)

replace winpool.dev/containerd-1.7.18 => github.com/containerd/containerd v1.7.18

replace winpool.dev/platforms-0.2.1 => github.com/containerd/platforms v0.2.1

replace winpool.dev/platforms-1.0.0-rc.0 => github.com/containerd/platforms v1.0.0-rc.0

replace winpool.dev/platforms-1.0.0-rc.1 => github.com/containerd/platforms v1.0.0-rc.1

replace winpool.dev/platforms-1.0.0-rc.2 => github.com/containerd/platforms v1.0.0-rc.2

replace winpool.dev/platforms-1.0.0-rc.4 => github.com/containerd/platforms v1.0.0-rc.4

replace winpool.dev/platforms-1.0.0-rc.5 => github.com/containerd/platforms v1.0.0-rc.5
