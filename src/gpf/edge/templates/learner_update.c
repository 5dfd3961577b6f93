/* ---- Learning ---- */

#define ROOT(x) (sizeof(gpf_real) == sizeof(float) ? (gpf_real)sqrtf((float)(x)) : (gpf_real)sqrt((double)(x)))
#define SIZE(x) (sizeof(gpf_real) == sizeof(float) ? (gpf_real)fabsf((float)(x)) : (gpf_real)fabs((double)(x)))
#define FADED ((gpf_real)1e-30) /* moments below this are taken as zero */

static int greatest(const gpf_real *outputs)
{
    int best = 0;
    for (int k = 1; k < GPF_ACTIONS; ++k) {
        if (outputs[k] > outputs[best]) {
            best = k;
        }
    }
    return best;
}

/* The mean value of what the learner would do: epsilon-greedy, or the best action with Q-learning. */
static double expected(const gpf_learner *g, const gpf_real *values)
{
    const double random = GPF_Q_LEARNING ? 0.0 : g->exploration;
    double mean = 0.0;
    for (int k = 0; k < GPF_ACTIONS; ++k) {
        mean += (double)values[k];
    }
    return (1.0 - random) * (double)values[greatest(values)] + random * mean / GPF_ACTIONS;
}

static int learns(const gpf_learner *g, int n)
{
    return !g->layers[kept_at(g, n)].frozen;
}

/* What a slope at one action's value sends back to the outputs of the layers, down to the first that learns. */
static void backward(const gpf_learner *g, int action, gpf_real slope)
{
    int lowest = 0;
    while (!learns(g, lowest)) {
        ++lowest;
    }
    memset(deltas[g->depth + 1], 0, sizeof deltas[0]);
    deltas[g->depth + 1][action] = slope;
    for (int n = g->depth; n > lowest; --n) {
        const shape s = shape_of(kept_at(g, n));
        for (int i = 0; i < s.inputs; ++i) {
            const gpf_real *weights = g->values + s.start + (size_t)i * (size_t)s.outputs;
            gpf_real total = 0;
            for (int j = 0; activations[n][i] > 0 && j < s.outputs; ++j) {
                total += deltas[n + 1][j] * weights[j];
            }
            deltas[n][i] = total;
        }
    }
}

#if GPF_CLIPS
/* The squared norm of a layer's gradient: of delta times input, where weights are not pruned, and of delta. */
static gpf_real square_norm(const gpf_learner *g, int n)
{
    const shape s = shape_of(kept_at(g, n));
    const gpf_real *delta = deltas[n + 1];
    const int masked = g->layers[kept_at(g, n)].masked;
    gpf_real whole = 0, total;
    for (int j = 0; j < s.outputs; ++j) {
        whole += delta[j] * delta[j];
    }
    total = whole;
    for (int i = 0; i < s.inputs; ++i) {
        const gpf_real x = activations[n][i];
        const float *belief = g->belief + s.start + (size_t)i * (size_t)s.outputs;
        gpf_real heard = masked ? 0 : whole;
        for (int j = 0; masked && x != 0 && j < s.outputs; ++j) {
            heard += belief[j] < 0.0f ? 0 : delta[j] * delta[j];
        }
        total += x * x * heard;
    }
    return total;
}
#endif

typedef struct {
    gpf_real scale, step, root, epsilon, one, two, decay;
    int masked;
} adam;

/* One step of Adam for the weights of one input, x; pruned ones have no gradient and stay zero. */
static void descend(gpf_learner *g, size_t start, int count, gpf_real x, const gpf_real *restrict delta, const adam *a)
{
    gpf_real *restrict values = g->values + start;
    gpf_real *restrict first = g->first + start;
    gpf_real *restrict second = g->second + start;
    const float *restrict belief = g->belief + start;
    const adam s = *a;
    const int masked = a->masked;
    for (int j = 0; j < count; ++j) {
        const gpf_real gradient = (masked && belief[j] < 0.0f ? 0 : delta[j] * x) * s.scale;
        gpf_real f = first[j] + s.one * (gradient - first[j]);
        gpf_real q = s.decay * second[j] + s.two * gradient * gradient;
        f = SIZE(f) > FADED ? f : 0; /* denormal numbers are slow */
        q = q > FADED ? q : 0;
        first[j] = f;
        second[j] = q;
        values[j] -= s.step * f / (ROOT(q) * s.root + s.epsilon);
    }
}

static void descend_layer(gpf_learner *g, int n, gpf_real scale)
{
    gpf_layer *layer = &g->layers[kept_at(g, n)];
    const shape s = shape_of(kept_at(g, n));
    adam a;
    layer->power_1 *= GPF_BETA_1;
    layer->power_2 *= GPF_BETA_2;
    a.scale = scale;
    a.step = (gpf_real)(g->rate / (1.0 - layer->power_1));
    a.root = (gpf_real)(1.0 / sqrt(1.0 - layer->power_2));
    a.epsilon = (gpf_real)GPF_EPSILON;
    a.one = (gpf_real)(1.0 - GPF_BETA_1);
    a.two = (gpf_real)(1.0 - GPF_BETA_2);
    a.decay = 1 - a.two;
    a.masked = layer->masked;
    for (int i = 0; i < s.inputs; ++i) {
        descend(g, s.start + (size_t)i * (size_t)s.outputs, s.outputs, activations[n][i], deltas[n + 1], &a);
    }
    descend(g, biases_of(s), s.outputs, 1, deltas[n + 1], &a);
}

void gpf_update(gpf_learner *g, const gpf_real inputs[GPF_INPUTS], int action, float reward, const gpf_real *next)
{
    double target = (double)reward;
    gpf_real error, scale = 1;
    if (next) {
        memcpy(deltas[0], next, GPF_INPUTS * sizeof *next);
        forward(g, deltas); /* its rows are free until the way back */
        target += GPF_DISCOUNT * expected(g, deltas[g->depth + 1]);
    }
    memcpy(activations[0], inputs, GPF_INPUTS * sizeof *inputs);
    forward(g, activations);
    error = (gpf_real)((double)activations[g->depth + 1][action] - target);
    backward(g, action, 2 * error);
#if GPF_CLIPS
    {
        gpf_real total = 0;
        double ratio;
        for (int n = 0; n <= g->depth; ++n) {
            total += learns(g, n) ? square_norm(g, n) : 0;
        }
        ratio = GPF_CLIP / (sqrt((double)total) + 1e-6);
        scale = (gpf_real)(ratio < 1.0 ? ratio : 1.0);
    }
#endif
    for (int n = 0; n <= g->depth; ++n) {
        if (learns(g, n)) {
            descend_layer(g, n, scale);
        }
    }
}
