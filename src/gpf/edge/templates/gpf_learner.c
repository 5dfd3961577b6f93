/* A navigator that gpf exported and that keeps learning; gpf_learner.h says how to call it.

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

$update

$rules

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

$saving

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
