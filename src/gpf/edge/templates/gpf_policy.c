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

/* ---- From sensors to the network's inputs ---- */

static int usable(const float sensors[GPF_SENSORS])
{
    for (int i = 0; i < GPF_SENSORS; ++i) {
        if (!(sensors[i] > -1e6f && sensors[i] < 1e6f)) {
            return 0; /* also NaN */
        }
    }
    return 1;
}

#if GPF_REMEMBERS

/* The robot's inputs: see gpf.plume.memory. */
static void observe(gpf_state *m, const float sensors[GPF_SENSORS], float *out)
{
    const float left = sensors[0], right = sensors[1], direction = sensors[3], heading = sensors[4];
    const float from_x = -cosf(direction), from_y = -sinf(direction);
    const float ahead_x = cosf(heading), ahead_y = sinf(heading);
    const int whiff = (left > right ? left : right) > $whiff;
    float length, across, c = 1.0f, s = 0.0f;
    m->age += 1;
    if (m->age == 0) {
        m->x = m->y = m->side = m->met = m->left = m->right = 0.0f;
        m->since = $long_ago;
        m->wind_x = from_x;
        m->wind_y = from_y;
    } else {
        m->x += $stride * ahead_x;
        m->y += $stride * ahead_y;
    }
    m->wind_x += $wind_smoothing * (from_x - m->wind_x);
    m->wind_y += $wind_smoothing * (from_y - m->wind_y);
    m->since += 1.0f;
    if (whiff) {
        m->since = m->x = m->y = m->left = m->right = 0.0f;
        m->met = 1.0f;
        m->side += $side_smoothing * ((left > right ? 1.0f : -1.0f) - m->side);
    }
    length = sqrtf(m->wind_x * m->wind_x + m->wind_y * m->wind_y);
    if (length > 0.0f) {
        c = m->wind_x / length;
        s = m->wind_y / length;
    }
    across = m->y * c - m->x * s;
    m->left = across > m->left ? across : m->left;
    m->right = -across > m->right ? -across : m->right;
    out[0] = (left - right) / (left + right + 3e-3f);
    out[1] = whiff ? 1.0f : 0.0f;
    out[2] = expf(-m->since / 10.0f);
    out[3] = expf(-m->since / 50.0f);
    out[4] = expf(-m->since / 200.0f);
    out[5] = m->side;
    out[6] = across / 3.0f;
    out[7] = (m->x * c + m->y * s) / 3.0f;
    out[8] = from_x * ahead_x + from_y * ahead_y;
    out[9] = from_y * ahead_x - from_x * ahead_y;
    out[10] = c * ahead_x + s * ahead_y;
    out[11] = s * ahead_x - c * ahead_y;
    out[12] = m->met;
    out[13] = (float)m->age / $max_steps;
    out[14] = m->left / 3.0f;
    out[15] = m->right / 3.0f;
}

#else

$tokenizer

/* The paper's 22 inputs: the tokens as one-hot vectors. */
static void observe(gpf_state *state, const float sensors[GPF_SENSORS], float *out)
{
    (void)state;
    for (int i = 0; i < 2 * LEVELS + OCTANTS; ++i) {
        out[i] = 0.0f;
    }
    out[level(sensors[0])] = 1.0f;
    out[LEVELS + level(sensors[1])] = 1.0f;
    out[2 * LEVELS + octant(sensors)] = 1.0f;
}

#endif

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

static uint64_t next_bits(uint64_t s[4])
{
    const uint64_t total = s[0] + s[3];
    const uint64_t result = ((total << 23) | (total >> 41)) + s[0];
    const uint64_t shifted = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = (s[3] << 45) | (s[3] >> 19);
    return result;
}

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
