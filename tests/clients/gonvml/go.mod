// go-nvml, unmodified, as a client of the simulated driver.
module tessera.dev/tests/clients/gonvml

go 1.26.0

require github.com/NVIDIA/go-nvml v0.13.3-0
