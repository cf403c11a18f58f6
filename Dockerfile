# syntax=docker/dockerfile:1
# Two images: `gateway` (no torch, no vLLM) and `replica` (vLLM with Weft's plugin).
#   docker build --target gateway -t weft-gateway .
#   docker build --target replica -t weft-replica .                          for NVIDIA GPUs
#   docker build --target replica --build-arg ENGINE=cpu -t weft-replica .   for a CPU, also --emulated
ARG PYTHON=3.12
ARG VLLM=0.32.0
ARG ENGINE=gpu

# --- build stages, not part of the images ----------------------------------------------------
FROM python:${PYTHON}-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
# The locks first: their layers stay cached when only Weft's code changes.
COPY requirements/ requirements/
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m venv --without-pip /opt/weft \
    && pip --python /opt/weft/bin/python install --no-deps -r requirements/gateway.txt

FROM build AS wheel
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install --no-deps -r requirements/gateway.txt
COPY pyproject.toml README.md LICENSE ./
COPY gateway/ gateway/
COPY engine_patches/ engine_patches/
COPY kernels/ kernels/
COPY deploy/ deploy/
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .

FROM build AS gateway-environment
COPY --from=wheel /wheels /wheels
RUN pip --python /opt/weft/bin/python install --no-deps /wheels/weft_gateway-*.whl

FROM build AS cpu-environment
# The locks do not contain torch, because pip would install its CUDA build.
RUN --mount=type=cache,target=/root/.cache/pip \
    pip --python /opt/weft/bin/python install --no-deps \
        --index-url https://download.pytorch.org/whl/cpu "torch==2.13.0+cpu" \
    && pip --python /opt/weft/bin/python install --no-deps -r requirements/engine-cpu.txt
COPY --from=wheel /wheels /wheels
RUN pip --python /opt/weft/bin/python install --no-deps /wheels/weft_gateway-*.whl \
    && /opt/weft/bin/python -m weft_deploy.local.demo_model --out /opt/weft-demo

# --- the gateway -----------------------------------------------------------------------------
FROM python:${PYTHON}-slim-bookworm AS gateway
RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin weft \
    && install --directory --owner weft --mode 700 /data
COPY --from=gateway-environment /opt/weft /opt/weft
ENV PATH=/opt/weft/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    WEFT_HOST=0.0.0.0 \
    WEFT_PORT=8080 \
    WEFT_DATA_DIR=/data
USER weft
WORKDIR /home/weft
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
# /health returns 503 while no replica is healthy, so that `up --wait` waits for one.
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ['WEFT_PORT'] + '/health', timeout=2)"]
ENTRYPOINT ["weft"]
CMD ["serve"]

# --- the replica -----------------------------------------------------------------------------
# vLLM's image contains the CUDA libraries, and the compiler that Triton needs at run time.
FROM vllm/vllm-openai:v${VLLM} AS replica-gpu
COPY --from=wheel /wheels /wheels
RUN python3 -m pip install --no-cache-dir --no-deps /wheels/weft_gateway-*.whl && rm -r /wheels

FROM python:${PYTHON}-slim-bookworm AS replica-cpu
# vLLM's CPU kernels link to libnuma.
RUN apt-get update && apt-get install --yes --no-install-recommends libnuma1 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=cpu-environment /opt/weft /opt/weft
COPY --from=cpu-environment /opt/weft-demo /opt/weft-demo
ENV PATH=/opt/weft/bin:$PATH

FROM replica-${ENGINE} AS replica
RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin weft \
    && install --directory --owner weft /models
ENV PYTHONUNBUFFERED=1 \
    HF_HOME=/models \
    VLLM_NO_USAGE_STATS=1
USER weft
WORKDIR /home/weft
VOLUME /models
EXPOSE 8001
STOPSIGNAL SIGTERM
# Downloading and loading a large model takes long. The container is "starting" until then.
HEALTHCHECK --interval=5s --timeout=3s --start-period=30m --retries=3 \
    CMD ["python3", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8001/health', timeout=2)"]
ENTRYPOINT ["weft", "replica", "--host", "0.0.0.0", "--port", "8001"]
CMD ["--help"]
