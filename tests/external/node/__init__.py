"""A kubelet without an API server, and tests of its static pods.

    kubelet.py     the kubelet: build, start, stop, kill, requests to its HTTPS interface
    pods.py        manifests of static pods, and the status, logs and execs of their containers
    client/        exec, attach and port-forward like kubectl (Go)
    features.py    features of pods: kinds of containers, namespaces, security, volumes, limits, hooks
    probes.py      probes, restarts, exit codes, image pulls
    streams.py     exec, attach, port-forward, logs
    statistics.py  stats and metrics, without and with PodAndContainerStatsFromCRI; the evented PLEG
    cadvisor.py    metrics from cAdvisor with the default feature gates, through Pinion's socket for it
    restarts.py    kubelet, daemon and monitor are restarted and killed while pods are running; removal of pods
"""
