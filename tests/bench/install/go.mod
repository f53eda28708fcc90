// How long "tessera install" takes until all works. Run by hand: tests/bench/README.md.
module tessera.dev/tests/bench/install

go 1.26.0

require tessera.dev/tests/cluster v0.0.0

require tessera.dev/tools/image v0.0.0 // indirect

replace tessera.dev/tests/cluster => ../../cluster

replace tessera.dev/tools/image => ../../../tools/image
