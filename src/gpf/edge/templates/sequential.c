static void layer_$n(const float *restrict in, float *restrict out)
{
    for (unsigned j = 0; j < $outputs; ++j) {
        out[j] = bias_$n[j];
    }
    for (unsigned i = 0; i < $inputs; ++i) {
        const float x = in[i];
        if (x == 0.0f) {
            continue;
        }
        $multiply
    }
$after
}
