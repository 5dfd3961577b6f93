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
