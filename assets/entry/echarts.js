// Of Apache ECharts only what the page draws, on a canvas: its HTML tooltips would need inline styles.
import { BarChart, CustomChart } from "echarts/charts";
import { GridComponent, TooltipComponent } from "echarts/components";
import { init, use } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";

use([
  BarChart,
  CanvasRenderer,
  CustomChart,
  GridComponent,
  TooltipComponent,
]);

export { init };
