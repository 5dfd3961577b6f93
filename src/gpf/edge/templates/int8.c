/* Weights and activations in 8 bits, inputs in 12: sums of products are whole numbers; what they are worth is a float per output. */
typedef struct {
    const int8_t *weights;
    const gpf_offset *starts; /* as of a sparse layer of floats */
    const gpf_unit *units;
    const float *worth; /* of 1 in the sum of each output */
    const float *bias, *scale, *shift;
    float per_unit; /* hidden layers: levels of an activation per unit of its value */
    uint16_t inputs, outputs;
} layer;

static const layer layers[LAYERS] = {
$table
};

static uint16_t levels_of[GPF_WIDTH];
static int32_t sums[GPF_WIDTH];

static uint16_t quantised(float value, uint16_t top)
{
    return value < 0.5f ? 0u : value >= (float)top - 0.5f ? top : (uint16_t)(value + 0.5f);
}

static void run_layer(const layer *l, float *out)
{
    const unsigned inputs = l->inputs, outputs = l->outputs;
    for (unsigned j = 0; j < outputs; ++j) {
        sums[j] = 0;
    }
    for (unsigned i = 0; i < inputs; ++i) {
        const int32_t x = levels_of[i];
        if (x == 0) {
            continue;
        }
#if GPF_SPARSE
        if (l->starts) {
            for (unsigned k = l->starts[i]; k < l->starts[i + 1]; ++k) {
                sums[l->units[k]] += l->weights[k] * x;
            }
            continue;
        }
#endif
        {
            const int8_t *weights = l->weights + i * outputs;
            for (unsigned j = 0; j < outputs; ++j) {
                sums[j] += weights[j] * x;
            }
        }
    }
    for (unsigned j = 0; j < outputs; ++j) {
        out[j] = (float)sums[j] * l->worth[j] + l->bias[j];
    }
#if GPF_NORMALISES
    if (l->scale) {
        normalise(outputs, l->scale, l->shift, out);
    }
#endif
}

static const float *run_network(void)
{
    float *values = activations[0];
    for (unsigned i = 0; i < layers[0].inputs; ++i) {
        levels_of[i] = quantised(values[i] * input_per_unit[i] + input_zeros[i], $input_levels);
    }
    for (unsigned n = 0; n < LAYERS; ++n) {
        run_layer(&layers[n], values);
        for (unsigned j = 0; n + 1u < LAYERS && j < layers[n].outputs; ++j) {
            levels_of[j] = quantised(values[j] * layers[n + 1u].per_unit, $levels); /* those below 0 become 0: the ReLU */
        }
    }
    return values;
}
