//! Converts the configuration into that of the engine.

use std::path::PathBuf;

use super::config::{CgroupDriver, Config, handlers::Handler};

/// Returns the configuration to open the engine with.
pub(super) fn engine_config(config: &Config, monitor: PathBuf) -> pod::Config {
    let network = &config.network;
    let pod::ReloadableConfig { registries, netns_pool, cdi_dirs } = changeable(config);
    pod::Config {
        state_dir: config.state_dir.clone(),
        data_dir: config.data_dir.clone(),
        monitor,
        netns_dir: config.netns_dir.clone(),
        namespaces_dir: config.namespaces_dir.clone(),
        default_cgroup_parent: config.cgroup_parent.clone(),
        cgroup_driver: match config.cgroup.driver {
            CgroupDriver::Auto => None,
            CgroupDriver::Cgroupfs => Some(pod::CgroupDriver::Cgroupfs),
            CgroupDriver::Systemd => Some(pod::CgroupDriver::Systemd),
        },
        cgroup_names: match &config.cadvisor.socket {
            Some(_) => pod::CgroupNames::Crio,
            None => pod::CgroupNames::Plain,
        },
        registries,
        network: pod::NetworkConfig {
            cni_conf_dir: network.cni_conf_dir.clone(),
            cni_bin_dirs: network.cni_bin_dirs.clone(),
            state_dir: config.state_dir.clone(),
            bridge: network.bridge.clone(),
            subnet: network.subnet.clone(),
            subnet6: network.subnet6.clone(),
            selectable: network.selectable.clone(),
            definitions_dir: config.data_dir.join("networks"),
            address_pools: network.address_pools.clone(),
            overlay: overlay(&network.overlay),
        },
        netns_pool,
        default_runtime_handler: String::new(),
        handlers: handlers(config),
        shim_handlers: shim_handlers(config),
        vm_handlers: vm_handlers(config),
        wasm: wasm(config),
        cdi_dirs,
        plugins: plugins(config),
        defaults: config.containers.defaults(),
        pinned_images: config.images.pinned.clone(),
        device_ownership_from_security_context: config.containers.device_ownership_from_security_context,
        log_line_max: config.containers.log_line_max,
        log_size_max: (config.containers.log_size_max > 0).then_some(config.containers.log_size_max),
        exec_sync_output_max: config.containers.exec_sync_output_max,
    }
}

/// Returns where overlays are kept, if there is an etcd cluster.
fn overlay(overlay: &super::config::Overlay) -> Option<pod::OverlayConfig> {
    let has_cluster = !overlay.endpoints.is_empty();
    has_cluster.then(|| pod::OverlayConfig {
        endpoints: overlay.endpoints.clone(),
        prefix: overlay.prefix.clone(),
        ca_file: overlay.ca_file.clone(),
        cert_file: overlay.cert_file.clone(),
        key_file: overlay.key_file.clone(),
        username: overlay.username.clone(),
        password_file: overlay.password_file.clone(),
        node: overlay.node,
        address_pools: overlay.address_pools.clone(),
    })
}

/// Returns the OCI runtimes.
fn handlers(config: &Config) -> Vec<pod::OciHandler> {
    let convert = |(name, handler): (&String, &Handler)| {
        let Handler::Oci(handler) = handler else { return None };
        Some(pod::OciHandler {
            name: name.clone(),
            binary: handler.binary.clone(),
            arguments: handler.arguments.clone(),
            root: handler.root.clone(),
            environment: handler.environment.clone(),
            timeout: handler.timeout,
            allowed_annotations: handler.allowed_annotations.clone(),
            default_annotations: handler.default_annotations.clone(),
            privileged_devices: match handler.privileged_without_host_devices {
                false => pod::PrivilegedDevices::All,
                true if handler.privileged_without_host_devices_all_devices_allowed => pod::PrivilegedDevices::Allowed,
                true => pod::PrivilegedDevices::Requested,
            },
            base_spec: handler.base_runtime_spec.as_ref().map(|base| base.spec.clone()),
        })
    };
    config.handlers.iter().filter_map(convert).collect()
}

/// Returns the containerd shims.
fn shim_handlers(config: &Config) -> Vec<pod::ShimHandler> {
    let convert = |(name, handler): (&String, &Handler)| {
        let Handler::Shim(handler) = handler else { return None };
        Some(pod::ShimHandler {
            name: name.clone(),
            binary: handler.binary.clone(),
            options: handler.options.clone(),
            environment: handler.environment.clone(),
            timeout: handler.timeout,
            allowed_annotations: handler.allowed_annotations.clone(),
            sandbox_container: handler.sandbox_container,
        })
    };
    config.handlers.iter().filter_map(convert).collect()
}

/// Returns the handlers whose pods are virtual machines.
fn vm_handlers(config: &Config) -> Vec<pod::VmHandler> {
    let convert = |(name, handler): (&String, &Handler)| {
        let Handler::Vm(handler) = handler else { return None };
        Some(pod::VmHandler {
            name: name.clone(),
            hypervisor: handler.hypervisor.clone(),
            file_server: handler.file_server.clone(),
            image: handler.image.clone(),
            memory: handler.memory,
            memory_max: handler.memory_max,
            cpus: handler.cpus,
            cpus_max: handler.cpus_max,
            allow_emulation: handler.allow_emulation,
            template: handler.template,
            boot_timeout: handler.boot_timeout,
            timeout: handler.timeout,
            silence_timeout: handler.silence_timeout,
        })
    };
    config.handlers.iter().filter_map(convert).collect()
}

/// Returns the handler of WebAssembly modules.
fn wasm(config: &Config) -> Option<pod::WasmHandler> {
    config.handlers.iter().find_map(|(name, handler)| {
        let Handler::Wasm(handler) = handler else { return None };
        Some(pod::WasmHandler {
            name: name.clone(),
            binary: handler.binary.clone(),
            cache: handler.cache.clone(),
            cache_size_max: handler.cache_size_max,
            size_max: handler.module_size_max,
            compile_memory_max: handler.compile_memory_max,
            compile_timeout: handler.compile_timeout,
            allowed_annotations: handler.allowed_annotations.clone(),
        })
    })
}

/// Returns the configuration of NRI plugins, if there may be some.
fn plugins(config: &Config) -> Option<pod::PluginConfig> {
    let nri = config.nri.clone();
    nri.enable.then(|| pod::PluginConfig {
        socket: (!nri.disable_connections).then_some(nri.socket_path),
        plugin_dir: nri.plugin_path,
        plugin_config_dir: nri.plugin_config_path,
        registration_timeout: nri.plugin_registration_timeout,
        request_timeout: nri.plugin_request_timeout,
        required: nri.required,
        restrictions: pod::PluginRestrictions {
            hooks: nri.reject_hooks,
            default_seccomp: nri.reject_default_seccomp,
            unconfined_seccomp: nri.reject_unconfined_seccomp,
            custom_seccomp: nri.reject_custom_seccomp,
            namespaces: nri.reject_namespaces,
            sysctls: nri.reject_sysctls,
            tolerate_missing_annotation: nri.tolerate_missing_annotation.unwrap_or_default(),
        },
        process_record: config.state_dir.join("nri-plugins.json"),
        runtime_name: "pinion".to_owned(),
        runtime_version: format!("v{}", env!("CARGO_PKG_VERSION")),
    })
}

/// Returns the part of the configuration that a running engine can apply.
pub(super) fn changeable(config: &Config) -> pod::ReloadableConfig {
    let registries = &config.registries;
    pod::ReloadableConfig {
        registries: pod::Registries {
            mirrors: registries.mirrors.clone(),
            plain_http: registries.plain_http.clone(),
            default_registry: Some(registries.default_registry.clone()),
            max_layer_bytes: Some(registries.max_layer_bytes),
            config_dir: Some(registries.config_dir.clone()),
            auth_file: registries.auth_file.clone(),
            transfers: pod::TransferLimits {
                bytes_per_second: registries.min_bytes_per_second,
                ..pod::TransferLimits::default()
            },
        },
        netns_pool: config.network.pool,
        cdi_dirs: config.cdi.dirs.clone(),
    }
}

/// Returns the options of the streaming server.
pub(super) fn streaming_options(config: &Config) -> cri::StreamingOptions {
    let super::config::Streaming { address, idle_timeout } = config.streaming;
    cri::StreamingOptions { address, idle_timeout, ..cri::StreamingOptions::default() }
}
