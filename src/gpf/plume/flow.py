"""How the wind flows around obstacles: potential flow on a staggered grid, and the velocity at a point.

The velocity is the gradient of a potential that satisfies the discrete Laplace equation in all free cells, with no flux
through the faces of solid ones. On the edges of the domain the potential is that of the undisturbed wind. So there is a
solution for any obstacles, also for walls that touch the edges, and without obstacles the wind is uniform. Air in a
pocket without a way to the edges is still. The equation is linear: the flow of any wind is a combination of those of
the two basis winds, one of 1 m/s along +x and one of 1 m/s along +y.

Potential flow lacks wakes, eddies and friction at walls. Air does not recirculate behind an obstacle, and it
accelerates in narrow openings and at corners, the more the smaller the cells are.
"""

import numpy as np
from numpy.typing import NDArray

from gpf.plume.kernels import device

Floats = NDArray[np.float64]


def basis_flows(labels: NDArray[np.int32], cell_x: float, cell_y: float) -> tuple[Floats, Floats]:
    """Velocities on the faces of the cells for the two basis winds, m/s.

    Solved for the disturbance of the uniform wind, which is 0 on the edges: without obstacles the wind is exactly
    uniform.

    Args:
        labels: Connected parts of the free cells, from 1, and 0 for solid cells; shape (ny, nx), row 0 at the bottom.
        cell_x: Extent of a cell along x, m.
        cell_y: Extent of a cell along y, m.

    Returns:
        `u`, velocities along x on the left and right faces, shape (2, ny, nx + 1), and `v`, velocities along y on the
        lower and upper faces, shape (2, ny + 1, nx). The first axis is the basis wind.
    """
    moving = _moving(labels)
    open_x, open_y = _open_faces(moving), _open_faces(moving.T).T
    weight_x, weight_y = _weights(open_x), _weights(open_y.T).T
    outflow_x, outflow_y = cell_y * np.diff(open_x, axis=1), cell_x * np.diff(open_y, axis=0)  # of a uniform wind
    sources = np.stack([outflow_x[moving], outflow_y[moving]], axis=1)  # (free cells, 2)
    solution = _solved(moving, cell_y / cell_x * weight_x, cell_x / cell_y * weight_y, sources)
    u, v = np.zeros((2, *open_x.shape)), np.zeros((2, *open_y.shape))
    u[0], v[1] = open_x, open_y
    for basis in range(2):
        disturbance = np.zeros(moving.shape)
        disturbance[moving] = solution[:, basis]
        disturbance = np.pad(disturbance, 1)  # 0 on the edges
        u[basis] += weight_x * np.diff(disturbance[1:-1], axis=1) / cell_x
        v[basis] += weight_y * np.diff(disturbance[:, 1:-1], axis=0) / cell_y
    return u, v


def _moving(labels: NDArray[np.int32]) -> NDArray[np.bool_]:
    """The free cells that are connected to an edge of the domain."""
    edges = np.concatenate([labels[0], labels[-1], labels[:, 0], labels[:, -1]])
    return (labels > 0) & np.isin(labels, edges)


def _open_faces(free: NDArray[np.bool_]) -> Floats:
    """1 for faces between two free cells in a row, or between a free one and an edge, otherwise 0; (ny, nx + 1)."""
    padded = np.pad(free, ((0, 0), (1, 1)), mode="edge")
    return (padded[:, :-1] & padded[:, 1:]).astype(np.float64)


def _weights(open_faces: Floats) -> Floats:
    """Open faces; those on an edge count twice, because it is half a cell away from the centre of its cell."""
    weights = open_faces.copy()
    weights[:, [0, -1]] *= 2.0
    return weights


def _solved(moving: NDArray[np.bool_], conductance_x: Floats, conductance_y: Floats, sources: Floats) -> Floats:
    """The potentials whose net flux into each moving cell through its faces is minus its sources; (cells, 2)."""
    from scipy.sparse import coo_array
    from scipy.sparse.linalg import splu

    if not moving.any():
        return sources
    number = np.cumsum(moving).reshape(moving.shape) - 1
    rows, columns, values = [], [], []
    for these, those, conductance in (
        (number[:, :-1], number[:, 1:], conductance_x[:, 1:-1]),
        (number[:-1], number[1:], conductance_y[1:-1]),
    ):
        linked = conductance > 0.0
        a, b, c = these[linked], those[linked], conductance[linked]
        rows += [a, b]
        columns += [b, a]
        values += [-c, -c]
    total = conductance_x[:, :-1] + conductance_x[:, 1:] + conductance_y[:-1] + conductance_y[1:]
    every = number[moving]
    rows, columns, values = [*rows, every], [*columns, every], [*values, total[moving]]
    places = np.concatenate(rows), np.concatenate(columns)
    matrix = coo_array((np.concatenate(values), places), shape=(len(every), len(every))).tocsc()
    symmetric = {"SymmetricMode": True}
    factors = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=symmetric)
    return factors.solve(sources)


@device
def flow_at(
    uv: Floats, offset: int, nx: int, ny: int, cell_x: float, cell_y: float, x: float, y: float, wx: float, wy: float
) -> tuple[float, float]:
    """The velocity (ux, uy) at a point where the undisturbed wind is (wx, wy), m/s.

    Within a cell, ux is linear in x and constant in y, and uy the other way round. Their divergence is then that of the
    discrete flow, 0, and nothing flows through a solid face. The price is that ux jumps from one row of cells to the
    next, and uy from one column to the next. Bilinear interpolation would have no jumps, but would make filaments
    gather in some places, thin out in others and press against walls. Outside the domain the velocity is that of the
    nearest point in it.

    Args:
        uv: Velocities on faces of packed terrains, m/s; see `gpf.plume.obstacles.pack_terrains`.
        offset: Where those of this terrain begin.
        nx: Number of columns of cells.
        ny: Number of rows of cells.
        cell_x: Extent of a cell along x, m.
        cell_y: Extent of a cell along y, m.
        x: Position, m.
        y: Position, m.
        wx: Undisturbed wind along x, m/s.
        wy: Undisturbed wind along y, m/s.
    """
    across, up = x / cell_x, y / cell_y  # in cells
    i = min(max(int(across), 0), nx - 1)
    j = min(max(int(up), 0), ny - 1)
    right = min(max(across - i, 0.0), 1.0)
    above = min(max(up - j, 0.0), 1.0)
    u = offset + 2 * (j * (nx + 1) + i)  # the left face, and beyond it the right one
    v = offset + 2 * (ny * (nx + 1) + j * nx + i)  # the lower face
    w = v + 2 * nx  # the upper face
    left_u = wx * uv[u] + wy * uv[u + 1]
    right_u = wx * uv[u + 2] + wy * uv[u + 3]
    lower_v = wx * uv[v] + wy * uv[v + 1]
    upper_v = wx * uv[w] + wy * uv[w + 1]
    return (1.0 - right) * left_u + right * right_u, (1.0 - above) * lower_v + above * upper_v
