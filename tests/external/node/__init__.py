"""A kubelet without an API server, its static pods, and what is asked of them.

    kubelet.py    the kubelet itself: built, started, killed, asked over its HTTPS interface
    pods.py       manifests, and what their containers say
    client/       exec, attach and port-forward as kubectl does them (Go)
    life.py       pods start: kinds of containers, namespaces, security, volumes, limits, hooks
    probes.py     probes, restarts, exit codes
    streams.py    exec, attach, port-forward, logs
    figures.py    stats and metrics, without and with PodAndContainerStatsFromCRI; the evented PLEG
    deaths.py     kubelet, daemon and monitor restarted and killed under running pods; pods removed
"""
