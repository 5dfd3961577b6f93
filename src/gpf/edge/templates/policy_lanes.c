/* Many robots, or whole episodes, in one call; for computers. */
#include "gpf_policy.h"

void gpf_act_lanes(
    unsigned char *states, size_t room, const int64_t *lanes, int count, const float *sensors, size_t columns,
    int sampled, int64_t *actions);
void gpf_replay(
    gpf_state *state, int count, const float *sensors, const uint8_t *begins, int sampled, int64_t *actions);

static int chosen(gpf_state *state, const float *sensors, int sampled)
{
#if GPF_SAMPLES
    if (sampled) {
        return gpf_sampled(state, sensors);
    }
#endif
    (void)sampled;
    return gpf_greedy(state, sensors);
}

/* Choose actions in some lanes; `room` is the number of bytes from one state to the next. */
void gpf_act_lanes(
    unsigned char *states, size_t room, const int64_t *lanes, int count, const float *sensors, size_t columns,
    int sampled, int64_t *actions)
{
    for (int n = 0; n < count; ++n) {
        const size_t lane = (size_t)lanes[n];
        gpf_state *state = (gpf_state *)(void *)(states + room * lane);
        actions[lane] = chosen(state, sensors + columns * lane, sampled);
    }
}

/* The actions for the observations of episodes, one after the other. */
void gpf_replay(
    gpf_state *state, int count, const float *sensors, const uint8_t *begins, int sampled, int64_t *actions)
{
    for (int n = 0; n < count; ++n) {
        if (begins[n]) {
            gpf_reset(state);
        }
        actions[n] = chosen(state, sensors + (size_t)n * GPF_SENSORS, sampled);
    }
}
