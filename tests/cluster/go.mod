// A real Kubernetes cluster on one machine for tests. Standard library only.
module tessera.dev/tests/cluster

go 1.26.0
