// A real Kubernetes cluster on one machine for tests. Standard library and our own modules only.
module tessera.dev/tests/cluster

go 1.26.0

require tessera.dev/tools/image v0.0.0

replace tessera.dev/tools/image => ../../tools/image
