module example.org/nri-plugin

go 1.24

require github.com/containerd/nri v0.12.5
