/* A navigator that gpf exported and that goes on learning; gpf_learner.h says how to call it.

   Expected SARSA with Adam, one update for each step, and the rules of growing, pruning and freezing of gpf.network.
   Of libm it needs $libm. Numbers that exist once in an update are double; all that
   exists once for each weight is gpf_real. Compile with -fno-math-errno: roots are then single instructions. */
#include "gpf_learner.h"

#include <math.h>
#include <string.h>

#define WIDEST $widest

$data

static const char metadata[] = $metadata;

static const char *const action_names[GPF_ACTIONS] = {$names};

static gpf_real activations[GPF_MAX_DEPTH + 2][WIDEST], deltas[GPF_MAX_DEPTH + 2][WIDEST];

$sensing

$random

/* ---- The network ---- */

typedef struct {
    size_t start; /* of the weights; biases follow */
    int inputs, outputs;
} shape;

static shape shape_of(int layer)
{
    shape s = {0u, GPF_WIDTH, layer == GPF_HEAD ? GPF_ACTIONS : GPF_WIDTH};
    if (layer == 0) {
        s.inputs = GPF_INPUTS;
    } else {
        s.start = (GPF_INPUTS + 1u) * GPF_WIDTH + (size_t)(layer - 1) * (GPF_WIDTH + 1u) * GPF_WIDTH;
    }
    return s;
}

static size_t biases_of(shape s)
{
    return s.start + (size_t)s.inputs * (size_t)s.outputs;
}

/* Where the n-th layer of the network is kept. */
static int kept_at(const gpf_learner *g, int n)
{
    return n < g->depth ? n : GPF_HEAD;
}

static void add_row(int count, const gpf_real *restrict weights, gpf_real x, gpf_real *restrict out)
{
    for (int j = 0; j < count; ++j) {
        out[j] += weights[j] * x;
    }
}

/* Every layer's outputs for the input in row 0. */
static void forward(const gpf_learner *g, gpf_real rows[][WIDEST])
{
    for (int n = 0; n <= g->depth; ++n) {
        const shape s = shape_of(kept_at(g, n));
        const gpf_real *in = rows[n];
        gpf_real *out = rows[n + 1];
        memcpy(out, g->values + biases_of(s), (size_t)s.outputs * sizeof *out);
        for (int i = 0; i < s.inputs; ++i) {
            if (in[i] != 0) {
                add_row(s.outputs, g->values + s.start + (size_t)i * (size_t)s.outputs, in[i], out);
            }
        }
        for (int j = 0; n < g->depth && j < s.outputs; ++j) {
            out[j] = out[j] > 0 ? out[j] : 0;
        }
    }
}

void gpf_respond(const gpf_learner *g, const gpf_real inputs[GPF_INPUTS], gpf_real outputs[GPF_ACTIONS])
{
    memcpy(activations[0], inputs, GPF_INPUTS * sizeof *inputs);
    forward(g, activations);
    memcpy(outputs, activations[g->depth + 1], GPF_ACTIONS * sizeof *outputs);
}

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

/* ---- Growing, pruning, freezing ---- */

#if GPF_GROWS
/* A new layer at the end, which passes on what it gets. */
static void add_layer(gpf_learner *g)
{
    const shape s = shape_of(g->depth);
    const size_t count = (GPF_WIDTH + 1u) * GPF_WIDTH;
    const gpf_layer blank = {1.0, 1.0, 0, 0, 0, 0};
    memset(g->values + s.start, 0, count * sizeof *g->values);
    memset(g->first + s.start, 0, count * sizeof *g->first);
    memset(g->second + s.start, 0, count * sizeof *g->second);
    memset(g->belief + s.start, 0, count * sizeof *g->belief);
    for (size_t i = 0; i < GPF_WIDTH; ++i) {
        g->values[s.start + i * (GPF_WIDTH + 1u)] = 1;
    }
    g->layers[g->depth] = blank;
    g->depth += 1;
}
#endif

static gpf_real better(gpf_real a, gpf_real b)
{
    return (GPF_GREATER_IS_BETTER ? a > b : a < b) ? a : b;
}

/* Belief rises up to the float next to 1 where a weight is large, and may fall where it is not. */
static void observe_belief(gpf_learner *g, shape s)
{
    for (size_t k = s.start; k < biases_of(s); ++k) {
        const int rises = SIZE(g->values[k]) > (gpf_real)GPF_WEIGHT_THRESHOLD;
        float belief = g->belief[k] - (float)GPF_BELIEF_FALL;
        if (g->belief[k] < 0.0f) {
            continue;
        }
        belief += rises ? (float)(GPF_BELIEF_INCREMENT + GPF_BELIEF_FALL) : 0.0f;
        belief = belief < 0.0f ? 0.0f : belief;
        g->belief[k] = belief > 0.99999994f ? 0.99999994f : belief;
    }
}

#if GPF_FREEZE_PATIENCE
/* Count epochs in which most weights that are left have hardly moved. */
static void observe_stillness(gpf_learner *g, gpf_layer *layer, shape s)
{
    int32_t still = 0, counted = 0;
    for (size_t k = s.start; k < biases_of(s); ++k) {
        const gpf_real move = g->values[k] - g->previous[k];
        const int left = !(g->belief[k] < 0.0f);
        counted += left;
        still += left && SIZE(move) < (gpf_real)GPF_FREEZE_DELTA;
        g->previous[k] = g->values[k];
    }
    if (layer->observed) {
        const int calm = counted == 0 || (double)still / (double)counted >= GPF_FREEZE_FRACTION;
        layer->still = calm ? layer->still + 1 : 0;
    }
    layer->observed = 1;
}
#endif

static void observe_layers(gpf_learner *g)
{
    for (int n = 0; n < g->depth; ++n) {
        if (!g->layers[n].frozen) {
            observe_belief(g, shape_of(n));
#if GPF_FREEZE_PATIENCE
            observe_stillness(g, &g->layers[n], shape_of(n));
#endif
        }
    }
}

#if GPF_GROWS
/* Prune weights of low belief and low saliency; the newest layer is spared. */
static void prune(gpf_learner *g)
{
    for (int n = 0; n < g->depth - 1; ++n) {
        const shape s = shape_of(n);
        gpf_layer *layer = &g->layers[n];
        if (layer->frozen || (GPF_SALIENCY_OBD && !(layer->power_2 < 1.0))) {
            continue;
        }
        for (size_t k = s.start; k < biases_of(s); ++k) {
            const gpf_real w = g->values[k];
#if GPF_SALIENCY_OBD
            const gpf_real cost = (gpf_real)0.5 * (w * w) * (g->second[k] / (gpf_real)(1.0 - layer->power_2));
#else
            const gpf_real cost = SIZE(w);
#endif
            if (g->belief[k] < (float)GPF_BELIEF_LIMIT && cost < (gpf_real)GPF_SALIENCY_THRESHOLD) {
                g->values[k] = g->first[k] = g->second[k] = 0;
                g->belief[k] = -1.0f;
                layer->masked = 1;
            }
        }
    }
}

static int prune_what_is_due(gpf_learner *g)
{
    int due = 0;
    for (int n = 0; n < GPF_MAX_DEPTH; ++n) {
        if (g->prunes_due[n] > 0) {
            g->prunes_due[n] -= 1;
            due |= g->prunes_due[n] == 0;
        }
    }
    if (due) {
        prune(g);
    }
    return due ? GPF_PRUNED : 0;
}
#endif

/* Take note of the metric. */
static void note(gpf_learner *g, gpf_real metric, int warm)
{
    const int settling = g->cooldown > 0 || !warm;
    int gone = 0;
    g->window[g->window_length++] = metric;
    while (gone < g->window_length && (settling || g->window_length - gone > GPF_GROW_PATIENCE)) {
        g->before = g->has_before ? better(g->window[gone], g->before) : g->window[gone];
        g->has_before = 1;
        ++gone;
    }
    g->window_length -= gone;
    memmove(g->window, g->window + gone, (size_t)g->window_length * sizeof *g->window);
    g->cooldown -= g->cooldown > 0;
#if GPF_DROP_WINDOW
    if (g->recent_length == GPF_DROP_WINDOW) {
        memmove(g->recent, g->recent + 1, (GPF_DROP_WINDOW - 1u) * sizeof *g->recent);
        --g->recent_length;
    }
    g->recent[g->recent_length++] = metric;
#endif
}

#if GPF_DROP_WINDOW
/* Whether the metric has fallen below a share of its best: the world has changed. */
static int has_fallen(gpf_learner *g, int warm)
{
    gpf_real mean = 0;
    if (g->recent_length < GPF_DROP_WINDOW) {
        return 0;
    }
    for (int n = 0; n < GPF_DROP_WINDOW; ++n) {
        mean += g->recent[n];
    }
    mean /= GPF_DROP_WINDOW;
    g->peak = g->has_peak ? better(mean, g->peak) : mean;
    g->has_peak = 1;
    if (GPF_GREATER_IS_BETTER) {
        return warm && mean < (gpf_real)GPF_DROP * g->peak;
    }
    return warm && mean * (gpf_real)GPF_DROP > g->peak;
}

/* Let everything learn, and forget what was best. */
static int start_over(gpf_learner *g)
{
    int thawed = 0;
    for (int n = 0; n < g->depth; ++n) {
        if (g->layers[n].frozen) {
            g->layers[n].frozen = g->layers[n].still = 0;
            thawed = GPF_THAWED;
        }
    }
    g->has_before = g->has_peak = g->cooldown = g->window_length = g->recent_length = 0;
    return thawed;
}
#endif

#if GPF_GROWS
/* Whether the metric has not improved for as many epochs as patience. */
static int has_stopped(const gpf_learner *g)
{
    gpf_real best, gain;
    if (!g->has_before || g->window_length < GPF_GROW_PATIENCE) {
        return 0;
    }
    best = g->window[0];
    for (int n = 1; n < g->window_length; ++n) {
        best = better(g->window[n], best);
    }
    gain = GPF_GREATER_IS_BETTER ? best - g->before : g->before - best;
    return !(gain >= (gpf_real)GPF_GROW_THRESHOLD && gain > 0);
}

static int grow(gpf_learner *g)
{
    add_layer(g);
    for (int n = 0; n < g->window_length; ++n) {
        g->before = g->has_before ? better(g->window[n], g->before) : g->window[n];
        g->has_before = 1;
    }
    g->window_length = 0;
    g->cooldown = GPF_GROW_COOLDOWN;
    if (GPF_PRUNE_PATIENCE > 0) {
        int n = 0;
        while (g->prunes_due[n] > 0) {
            ++n;
        }
        g->prunes_due[n] = GPF_PRUNE_PATIENCE;
    }
    return GPF_GROWN;
}
#endif

int gpf_end_epoch(gpf_learner *g, gpf_real metric)
{
    const int warm = g->epoch >= GPF_WARMUP;
    int happened = 0;
#if GPF_GROWS
    int grows;
#endif
    note(g, metric, warm);
#if GPF_GROWS
    grows = warm && g->depth < GPF_MAX_DEPTH && has_stopped(g);
#endif
    g->epoch += 1;
#if GPF_DROP_WINDOW
    if (has_fallen(g, warm)) {
        observe_layers(g);
        happened = start_over(g);
#if GPF_GROWS
        happened |= g->depth < GPF_MAX_DEPTH ? grow(g) : 0;
#endif
        return happened;
    }
#endif
    if (!warm) {
        return 0;
    }
    observe_layers(g);
#if GPF_GROWS
    happened |= prune_what_is_due(g);
    happened |= grows ? grow(g) : 0;
#endif
#if GPF_FREEZE_PATIENCE
    for (int n = 0; n < g->depth; ++n) {
        if (!g->layers[n].frozen && g->layers[n].still >= GPF_FREEZE_PATIENCE) {
            g->layers[n].frozen = 1;
            happened |= GPF_FROZEN;
        }
    }
#endif
    return happened;
}

/* ---- Acting ---- */

void gpf_learner_begin(gpf_learner *g, const uint64_t words[4])
{
    const size_t hidden = shape_of(GPF_START_DEPTH).start, head = shape_of(GPF_HEAD).start;
    const size_t rest = (GPF_WIDTH + 1u) * GPF_ACTIONS;
    memset(g, 0, sizeof *g);
    g->rate = GPF_RATE;
    g->exploration = GPF_EXPLORATION;
    memcpy(g->stream, words, sizeof g->stream);
    g->depth = GPF_START_DEPTH;
    for (int n = 0; n <= GPF_MAX_DEPTH; ++n) {
        g->layers[n].power_1 = g->layers[n].power_2 = 1.0;
        g->layers[n].masked = GPF_START_PRUNED;
        g->layers[n].frozen = n < GPF_START_DEPTH && (GPF_START_FROZEN >> n & 1) != 0;
    }
    for (size_t k = 0; k < hidden + rest; ++k) {
        const size_t place = k < hidden ? k : head + k - hidden;
        g->values[place] = start_values[k];
#if GPF_START_PRUNED
        g->belief[place] = start_pruned[k / 8u] >> k % 8u & 1 ? -1.0f : 0.0f;
#endif
    }
}

static int act(gpf_learner *g, gpf_state *state)
{
    for (int i = 0; i < GPF_INPUTS; ++i) {
        activations[0][i] = state->inputs[i];
    }
    forward(g, activations);
    state->action = greatest(activations[g->depth + 1]);
    if ((double)(next_bits(g->stream) >> 11) * (1.0 / 9007199254740992.0) < g->exploration) {
        state->action = (int32_t)((next_bits(g->stream) >> 33) % GPF_ACTIONS);
    }
    return state->action;
}

int gpf_start(gpf_learner *g, gpf_state *state, const float sensors[GPF_SENSORS])
{
    state->action = -1;
#if GPF_REMEMBERS
    state->age = -1;
#endif
    if (!usable(sensors)) {
        return GPF_BAD_SENSORS;
    }
    observe(state, sensors, state->inputs);
    return act(g, state);
}

static void learn(gpf_learner *g, const gpf_state *state, const gpf_real *inputs, float reward, const gpf_real *next)
{
    if (g->rate > 0.0 && state->action >= 0) {
        gpf_update(g, inputs, state->action, reward, next);
    }
}

static int is_reward(float reward)
{
    return reward > -1e6f && reward < 1e6f; /* not NaN */
}

int gpf_step(gpf_learner *g, gpf_state *state, float reward, const float sensors[GPF_SENSORS])
{
    static gpf_real before[GPF_INPUTS], after[GPF_INPUTS];
    if (state->action < 0) {
        return gpf_start(g, state, sensors);
    }
    if (!usable(sensors) || !is_reward(reward)) {
        return GPF_BAD_SENSORS;
    }
    for (int i = 0; i < GPF_INPUTS; ++i) {
        before[i] = state->inputs[i];
    }
    observe(state, sensors, state->inputs);
    for (int i = 0; i < GPF_INPUTS; ++i) {
        after[i] = state->inputs[i];
    }
    learn(g, state, before, reward, after);
    return act(g, state);
}

void gpf_end(gpf_learner *g, gpf_state *state, float reward)
{
    static gpf_real before[GPF_INPUTS];
    for (int i = 0; i < GPF_INPUTS; ++i) {
        before[i] = state->inputs[i];
    }
    if (is_reward(reward)) {
        learn(g, state, before, reward, 0);
    }
    state->action = -1;
}

/* ---- Saving ---- */

#define MAGIC 0x4c465047u /* "GPFL" */
#define VERSION 1u

/* What a block begins with; the learner and its CRC-32 follow. */
typedef struct {
    uint32_t magic, version, settings, sequence, length;
} block_head;

uint32_t gpf_crc32(uint32_t crc, const void *bytes, size_t count)
{
    static const uint32_t table[16] = {
        0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u, 0x4db26158u, 0x5005713cu,
        0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu, 0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu};
    const unsigned char *p = bytes;
    crc = ~crc;
    for (size_t k = 0; k < count; ++k) {
        crc ^= p[k];
        crc = crc >> 4 ^ table[crc & 15u];
        crc = crc >> 4 ^ table[crc & 15u];
    }
    return ~crc;
}

int gpf_save(gpf_learner *g, gpf_writer write, void *context)
{
    const uint32_t sequence = g->sequence + 1u;
    const block_head head = {MAGIC, VERSION, GPF_SETTINGS, sequence, (uint32_t)sizeof *g};
    const int slot = (int)(sequence & 1u);
    uint32_t crc;
    int written;
    g->sequence = sequence;
    crc = gpf_crc32(gpf_crc32(0u, &head, sizeof head), g, sizeof *g);
    written = write(context, slot, 0u, &head, sizeof head) && write(context, slot, sizeof head, g, sizeof *g) &&
              write(context, slot, sizeof head + sizeof *g, &crc, sizeof crc);
    if (!written) {
        g->sequence = sequence - 1u; /* the same slot again next time: the other one is whole */
    }
    return written;
}

/* Whether a block is whole and of this program; its sequence number goes to `sequence`. */
static int is_whole(const unsigned char *block, uint32_t *sequence)
{
    block_head head;
    uint32_t crc;
    memcpy(&head, block, sizeof head);
    *sequence = head.sequence;
    if (head.magic != MAGIC || head.version != VERSION || head.settings != GPF_SETTINGS ||
        head.length != sizeof(gpf_learner)) {
        return 0;
    }
    memcpy(&crc, block + sizeof head + sizeof(gpf_learner), sizeof crc);
    return crc == gpf_crc32(0u, block, sizeof head + sizeof(gpf_learner));
}

int gpf_restore(gpf_learner *g, const unsigned char *slot_0, const unsigned char *slot_1)
{
    uint32_t sequence_0, sequence_1;
    const int whole_0 = is_whole(slot_0, &sequence_0), whole_1 = is_whole(slot_1, &sequence_1);
    const int newer = whole_1 && (!whole_0 || (int32_t)(sequence_1 - sequence_0) > 0);
    if (!whole_0 && !whole_1) {
        return -1;
    }
    memcpy(g, (newer ? slot_1 : slot_0) + sizeof(block_head), sizeof *g);
    return newer;
}

/* ---- About this navigator ---- */

const char *gpf_action_name(int action)
{
    return action >= 0 && action < GPF_ACTIONS ? action_names[action] : "none";
}

const char *gpf_metadata(void)
{
    return metadata;
}

size_t gpf_learner_ram(void)
{
    return sizeof(gpf_learner) + sizeof(gpf_state) + sizeof activations + sizeof deltas +
           2u * GPF_INPUTS * sizeof(gpf_real) + GPF_INPUTS * sizeof(gpf_real);
}
