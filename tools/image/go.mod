// Writes container images without a container engine. Standard library only.
module tessera.dev/tools/image

go 1.26.0
