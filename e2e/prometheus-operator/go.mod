module winpool.dev/e2e/prometheus-operator

go 1.26.0

// Not built: its CustomResourceDefinitions are read, to check manifests against them.
require github.com/prometheus-operator/prometheus-operator v0.85.0
