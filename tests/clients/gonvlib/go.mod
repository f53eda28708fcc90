// go-nvlib, unmodified, as a reader of the simulated driver root.
module tessera.dev/tests/clients/gonvlib

go 1.26.0

require (
	github.com/NVIDIA/go-nvlib v0.9.0
	github.com/NVIDIA/go-nvml v0.13.0-1
)

require github.com/google/uuid v1.6.0 // indirect
