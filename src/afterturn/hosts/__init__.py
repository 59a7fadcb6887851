"""Programs that use the library: the command line and OpenTelemetry; later servers, hooks and frameworks."""
