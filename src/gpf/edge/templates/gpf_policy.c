/* A navigator that gpf exported; gpf_policy.h says how to call it.

   Of libm it needs $libm. Only the octant of the wind$doubles is computed in double. Inputs are in the outer
   loop and outputs in the inner one, so that compilers vectorise without -ffast-math; inputs that are 0 cost nothing. */
#include "gpf_policy.h"

#if GPF_REMEMBERS || GPF_SAMPLES || GPF_NORMALISES
#include <math.h>
#endif

#define LAYERS $layers
#define SELF_TESTS $tests

$data

static const char metadata[] = $metadata;

static const char *const action_names[GPF_ACTIONS] = {$names};

static float activations[2][GPF_WIDTH];

$sensing

/* ---- The network ---- */

#if GPF_NORMALISES
static void normalise(unsigned count, const float *scale, const float *shift, float *out)
{
    float mean = 0.0f, square = 0.0f, root;
    for (unsigned j = 0; j < count; ++j) {
        mean += out[j];
    }
    mean /= (float)count;
    for (unsigned j = 0; j < count; ++j) {
        square += (out[j] - mean) * (out[j] - mean);
    }
    root = 1.0f / sqrtf(square / (float)count + 1e-5f);
    for (unsigned j = 0; j < count; ++j) {
        out[j] = (out[j] - mean) * root * scale[j] + shift[j];
    }
}
#endif

$network

/* ---- Acting ---- */

static void respond(gpf_state *state, const float sensors[GPF_SENSORS])
{
    const float *out;
    observe(state, sensors, activations[0]);
    out = run_network();
    for (int k = 0; k < GPF_ACTIONS; ++k) {
        state->outputs[k] = out[k];
    }
}

void gpf_reset(gpf_state *state)
{
#if GPF_REMEMBERS
    state->age = -1;
#endif
    for (int k = 0; k < GPF_ACTIONS; ++k) {
        state->outputs[k] = 0.0f;
    }
}

static int greatest(const float outputs[GPF_ACTIONS])
{
    int best = 0;
    for (int k = 1; k < GPF_ACTIONS; ++k) {
        if (outputs[k] > outputs[best]) {
            best = k;
        }
    }
    return best;
}

int gpf_greedy(gpf_state *state, const float sensors[GPF_SENSORS])
{
    if (!usable(sensors)) {
        return GPF_BAD_SENSORS;
    }
    respond(state, sensors);
    return greatest(state->outputs);
}

#if GPF_SAMPLES

$random

void gpf_seed(gpf_state *state, const uint64_t words[4])
{
    for (int k = 0; k < 4; ++k) {
        state->stream[k] = words[k];
    }
}

int gpf_sampled(gpf_state *state, const float sensors[GPF_SENSORS])
{
    float top;
    double total = 0.0, left;
    if (!usable(sensors)) {
        return GPF_BAD_SENSORS;
    }
    respond(state, sensors);
    top = state->outputs[greatest(state->outputs)];
    for (int k = 0; k < GPF_ACTIONS; ++k) {
        total += (double)expf(state->outputs[k] - top);
    }
    left = (double)(next_bits(state->stream) >> 11) * (1.0 / 9007199254740992.0) * total;
    for (int k = 0; k < GPF_ACTIONS - 1; ++k) {
        left -= (double)expf(state->outputs[k] - top);
        if (left < 0.0) {
            return k;
        }
    }
    return GPF_ACTIONS - 1;
}

#endif

/* ---- About this policy ---- */

const char *gpf_action_name(int action)
{
    return action >= 0 && action < GPF_ACTIONS ? action_names[action] : "none";
}

const char *gpf_metadata(void)
{
    return metadata;
}

int gpf_self_test(void)
{
    static gpf_state state;
    int wrong = 0;
    gpf_reset(&state);
    for (int n = 0; n < SELF_TESTS; ++n) {
        const int action = gpf_greedy(&state, test_sensors[n]);
        const float *wanted = test_outputs[n];
        const float best = wanted[greatest(wanted)];
        const float slack = 1e-3f * (1.0f + (best < 0.0f ? -best : best));
        int bad = action < 0 || wanted[action] < best - slack; /* of two that are equal, either will do */
        for (int k = 0; k < GPF_ACTIONS; ++k) {
            const float off = state.outputs[k] - wanted[k];
            bad |= !(off < slack && -off < slack);
        }
        wrong += bad;
    }
    return wrong;
}

size_t gpf_ram(void)
{
    return $ram;
}

size_t gpf_flash(void)
{
    return $flash;
}

#ifdef GPF_MAIN
#include <stdio.h>

int main(void)
{
    const int wrong = gpf_self_test();
    printf("RAM: %lu bytes\n", (unsigned long)gpf_ram());
    printf("flash: %lu bytes of constants\n", (unsigned long)gpf_flash());
    printf("self-test: %d of %d observations wrong\n", wrong, SELF_TESTS);
    return wrong != 0;
}
#endif
