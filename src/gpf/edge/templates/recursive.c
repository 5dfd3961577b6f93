/* All layers are alike: one routine, with the n-th layer's weights. */
typedef struct {
    const float *weights;    /* by input: the outputs' weights; of a sparse layer, those that are not 0 */
    const gpf_offset *starts; /* sparse: where each input's weights begin, and where the last one's end; else 0 */
    const gpf_unit *units;    /* sparse: to which output each weight belongs */
    const float *bias, *scale, *shift; /* scale and shift: of the normalisation, or 0 */
    uint16_t inputs, outputs;
} layer;

static const layer layers[LAYERS] = {
$table
};

static void run_layer(const layer *l, const float *restrict in, float *restrict out)
{
    const unsigned inputs = l->inputs, outputs = l->outputs;
    for (unsigned j = 0; j < outputs; ++j) {
        out[j] = l->bias[j];
    }
    for (unsigned i = 0; i < inputs; ++i) {
        const float x = in[i];
        if (x == 0.0f) {
            continue;
        }
#if GPF_SPARSE
        if (l->starts) {
            for (unsigned k = l->starts[i]; k < l->starts[i + 1]; ++k) {
                out[l->units[k]] += l->weights[k] * x;
            }
            continue;
        }
#endif
        {
            const float *weights = l->weights + i * outputs;
            for (unsigned j = 0; j < outputs; ++j) {
                out[j] += weights[j] * x;
            }
        }
    }
#if GPF_NORMALISES
    if (l->scale) {
        normalise(outputs, l->scale, l->shift, out);
    }
#endif
}

static const float *run_network(void)
{
    for (unsigned n = 0; n < LAYERS; ++n) {
        float *out = activations[(n + 1u) % 2u];
        run_layer(&layers[n], activations[n % 2u], out);
        for (unsigned j = 0; n + 1u < LAYERS && j < layers[n].outputs; ++j) {
            out[j] = out[j] > 0.0f ? out[j] : 0.0f;
        }
    }
    return activations[LAYERS % 2];
}
